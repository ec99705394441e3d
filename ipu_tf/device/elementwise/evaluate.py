"""Evaluates a program with calls of native kernels: elementwise operations, random bits, moments, some products.

XLA makes code for each group of elementwise operations that it finds, 20 to 40 ms each, of which a network's step has
hundreds. The kernel is there already.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
from jax.extend import core

from ipu_tf.device.convolution.native import library
from ipu_tf.device.convolution.native.random_bits import drawn, is_draw
from ipu_tf.device.convolution.native.row_product import computed, is_row_product
from ipu_tf.device.elementwise import encoding
from ipu_tf.device.elementwise.call_choice import calls_pay
from ipu_tf.device.elementwise.function import function_of
from ipu_tf.device.elementwise.group import Group
from ipu_tf.device.elementwise.grouping import Step, steps
from ipu_tf.device.elementwise.in_place import unread_operands
from ipu_tf.device.elementwise.layer_normalization_calls import with_layer_normalization_calls
from ipu_tf.device.elementwise.one_pass_moments import with_one_pass_moments
from ipu_tf.device.elementwise.product_calls import with_product_calls
from ipu_tf.device.elementwise.softmax_calls import with_softmax_calls
from ipu_tf.device.elementwise.transposed_product import is_transposed_product, transposed_product
from ipu_tf.device.jaxprs.evaluation import bound, retraced, traced_and_evaluated
from ipu_tf.device.jaxprs.flat_equations import Atom, Equation, FlatFunction, flattened
from ipu_tf.device.jaxprs.split_carries import with_split_carries
from ipu_tf.device.op_scopes import scope_named

_REWRITES = (with_layer_normalization_calls, with_one_pass_moments, with_softmax_calls, with_product_calls)
"""What replaces some equations by one call. Moments are part of a layer normalisation, which is found first."""
_KERNELS: tuple[tuple[Any, Any], ...] = (
    (is_draw, drawn),
    (is_row_product, computed),
    (is_transposed_product, transposed_product),
)
"""Other equations that are computed otherwise: which they are, and what computes their one result."""


def with_native_elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function that JAX will trace: parts of it are calls of native kernels.

    They are its elementwise operations, unless there are few groups of them, random bits, and most matrix products.
    Without the native library, on other backends than the CPU, and in code for files, it computes what it computed.

    Args:
        function: traceable by JAX, of trees of arrays.
    """

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        if not library.runs_here():
            return function(*arguments)
        return traced_and_evaluated(function, arguments, _evaluated)

    return run


def _evaluated(traced: core.ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
    traced = with_split_carries(traced)
    plan = planned(traced)
    return core.jaxpr_as_fun(traced)(*arguments) if plan is None else plan.evaluated(arguments)


def planned(function: core.ClosedJaxpr, carried: Sequence[tuple[int, int]] = ()) -> Plan | None:
    """Groups a traced function's operations, and those of its loops and branches; returns None if nothing changes.

    Args:
        function: the function.
        carried: of a loop's body, the places of results and of the arguments that they become.
    """
    plain = flattened(function)
    flat = plain
    for rewrite in _REWRITES:
        flat = rewrite(flat)
    inner = {place: changed for place, each in enumerate(flat.equations) if (changed := _changed_parameters(each.eqn))}
    grouped = steps(flat, grouped=True)
    many = calls_pay(grouped)
    if flat is plain and not many and not inner and not any(_kernel(each.eqn) for each in flat.equations):
        return None
    rewritten = {flat.equations[place]: changed for place, changed in inner.items()}
    outputs = [(flat.outputs[result], flat.inputs[argument]) for result, argument in carried]
    replaced = {made: argument for made, argument in outputs if isinstance(made, int)}
    chosen = grouped if many else steps(flat, grouped=False)
    return Plan(flat, chosen, rewritten, replaced, unread_operands(flat, chosen))


def _kernel(eqn: core.JaxprEqn) -> Callable[..., jax.Array] | None:
    return next((compute for is_one, compute in _KERNELS if is_one(eqn)), None)


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """What evaluates a function with calls of the native kernel.

    Attributes:
        function: the function.
        steps: what is evaluated, in order.
        rewritten: for equations whose loops or branches change, their new parameters.
        replaced: for values, the loop's values whose memory they take.
        unread: for groups, the operands that nothing reads afterwards.
    """

    function: FlatFunction
    steps: Sequence[Step]
    rewritten: Mapping[Equation, dict[str, Any]]
    replaced: Mapping[int, int]
    unread: Mapping[Group, Collection[int]]

    def evaluated(self, arguments: Sequence[Any]) -> list[Any]:
        """Evaluates the function."""
        return _Evaluation(self, arguments).run()


class _Evaluation:
    """Evaluates a plan. Values are kept in the shape in which a kernel made them: `[rows, columns]`, for example.

    XLA copies an operand that a call writes over, if a reshape made it.
    """

    def __init__(self, plan: Plan, arguments: Sequence[Any]) -> None:
        self._plan, self._function = plan, plan.function
        self._values = {**self._function.constants, **dict(zip(self._function.inputs, arguments, strict=True))}

    def run(self) -> list[Any]:
        """Returns the results."""
        for step in self._plan.steps:
            if isinstance(step, Group):
                self._call(step)
            else:
                self._bind(step)
        return [self._read(atom) for atom in self._function.outputs]

    def _read(self, atom: Atom) -> Any:
        """Returns a value in its own shape."""
        if isinstance(atom, core.Literal):
            return atom.val
        value, shape = self._as_made(atom), getattr(self._function.types[atom], "shape", None)
        return value if shape is None or value.shape == shape else value.reshape(shape)

    def _as_made(self, value: int) -> Any:
        """Returns a value in any shape; what only shows another one is made when it is read."""
        if value not in self._values:
            self._bind(self._function.made_by[value])
        return self._values[value]

    def _bind(self, equation: Equation) -> None:
        eqn = equation.eqn
        operands = [self._read(atom) for atom in equation.inputs]
        kernel = _kernel(eqn)
        if kernel is not None:
            with scope_named(equation.scope):
                self._values[equation.outputs[0]] = kernel(eqn, *operands)
            return
        results = bound(equation, operands, self._plan.rewritten.get(equation))
        self._values.update(zip(equation.outputs, results, strict=True))

    def _call(self, group: Group) -> None:
        types = self._function.types
        function = function_of(group, types, self._plan.replaced, self._plan.unread[group])
        operands = [self._as_made(operand.value) for operand in function.inputs]
        made = (*group.outputs, *group.sums)
        results = [types[value] for value in made]
        for output, taken in function.in_place.items():
            results[output] = results[output].update(shape=operands[taken].shape)
        with scope_named(group.scope()):
            self._values.update(zip(made, encoding.call(function, operands, results), strict=True))


def _changed_parameters(eqn: core.JaxprEqn) -> dict[str, Any] | None:
    """Returns an equation's parameters with what its loops and branches compute rewritten; None if none changes."""
    parameters = eqn.params
    match eqn.primitive.name:
        case "while":
            first, count = parameters["body_nconsts"], len(parameters["body_jaxpr"].out_avals)
            changed = {"body_jaxpr": _retraced(parameters["body_jaxpr"], [(n, first + n) for n in range(count)])}
        case "scan":
            first, count = parameters["num_consts"], parameters["num_carry"]
            changed = {"jaxpr": _retraced(parameters["jaxpr"], [(n, first + n) for n in range(count)])}
        case "cond":
            branches = tuple(_retraced(branch) for branch in parameters["branches"])
            same = all(new is old for new, old in zip(branches, parameters["branches"], strict=True))
            return None if same else {**parameters, "branches": branches}
        case _:
            return None
    same = all(parameters[name] is new for name, new in changed.items())
    return None if same else {**parameters, **changed}


def _retraced(function: core.ClosedJaxpr, carried: Sequence[tuple[int, int]] = ()) -> core.ClosedJaxpr:
    """Returns what a loop or a branch computes with its groups as calls; the same jaxpr if nothing changes."""
    plan = planned(function, carried)
    return function if plan is None else retraced(function, plan.evaluated)
