"""From a traced TensorFlow function to a module and what its parameters stand for."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf.lowering.jax.jax_private import MLIRError
from ipu_tf.lowering.stablehlo.errors import LoweringError, UnsupportedOp, UnsupportedOpsError
from ipu_tf.lowering.stablehlo.module import Module, parse
from ipu_tf.lowering.tensorflow import tf_private, tf_values
from ipu_tf.lowering.tensorflow.rewritten import checked_function
from ipu_tf.lowering.tensorflow.rounding_scopes import rounding_overrides

_INPUTS = ("Placeholder", "PlaceholderWithDefault", "_Arg", "_Retval")
HOST_ONLY_DTYPES = (tf.string, tf.variant, tf.resource)


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A concrete function, lowered.

    Attributes:
        module: the StableHLO module. Its parameters are the function's tensor inputs, then its captures; its results
            are the function's tensor outputs, then the new values of the variables it changes.
        inputs: specs of the tensor inputs.
        captures: what each captured parameter stands for: a `tf.Variable`, or a tensor.
        outputs: number of tensor outputs.
    """

    module: Module
    inputs: tuple[tf.TensorSpec, ...]
    captures: tuple[Any, ...]
    outputs: int


def lower(function: Any, variables: Sequence[tf.Variable] = ()) -> Lowered:
    """Lowers a `tf.types.experimental.ConcreteFunction`.

    Args:
        function: the concrete function.
        variables: variables whose handles the function may capture without TensorFlow having noted it.

    Raises:
        UnsupportedOpsError: listing every op that TensorFlow cannot compile.
        LoweringError: if TensorFlow cannot compile the function for another reason, with TensorFlow's own words.
    """
    author, function = function, checked_function(function, _name(function))
    variables = (*variables, *author.graph.variables)
    captured = function.captured_inputs
    tensors = function.inputs[: len(function.inputs) - len(captured)]
    specs = tuple(_spec(tensor, function.name) for tensor in tensors)
    try:
        with tf_values.eager_mode():
            bytecode = tf_private.stablehlo_bytecode(function, specs)
    except (tf.errors.OpError, ValueError) as error:
        raise _refusal(function, str(error)) from error
    module = _parsed(bytecode, function)
    module = dataclasses.replace(module, rounding_overrides=lambda: rounding_overrides(author.graph))
    captures = tuple(_capture(tensor, function, variables) for tensor in captured)
    lowered = Lowered(module, specs, captures, len([output for output in function.outputs if output is not None]))
    _check(lowered)
    return lowered


def _parsed(bytecode: bytes, function: Any) -> Module:
    try:
        return parse(bytecode)
    except (NotImplementedError, MLIRError) as error:
        raise LoweringError(
            f"`{_name(function)}` has values whose shape depends on data, or of a type the device has not: {error} "
            "Nothing was run. tf.where(x), tf.unique and tf.boolean_mask are such ops; their forms with fixed shapes "
            "(tf.where(x, a, b), a mask multiplied in) are not."
        ) from error


def _spec(tensor: tf.Tensor, name: str) -> tf.TensorSpec:
    if tensor.dtype in HOST_ONLY_DTYPES:
        raise LoweringError(
            f"The emulated IPU computes with numbers and booleans. Received: an argument of dtype "
            f"{tensor.dtype.name} for `{name}`. Convert it to numbers on the host."
        )
    if not tensor.shape.is_fully_defined():
        raise LoweringError(
            f"An argument of `{name}` has the shape {tensor.shape}, which is not fully defined. The device needs "
            "fixed shapes: with tf.data use batch(..., drop_remainder=True), or give the tensor a static shape."
        )
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _capture(tensor: tf.Tensor, function: Any, variables: Sequence[tf.Variable]) -> Any:
    if tensor.dtype != tf.resource:
        return tensor
    for variable in (*variables, *function.graph.variables):
        if variable.handle is tensor:
            return variable
    # TensorFlow notes the variables that a function reads, not those that it only writes.
    unnoted = tf_values.variable_of(tensor)
    if unnoted is not None:
        return unnoted
    raise LoweringError(
        f"`{function.name}` uses a resource that is not a variable ({tensor}). Only variables live on the device: "
        "take dataset elements with `next(iterator)` of an iterator made inside the strategy's scope, and look-up "
        "tables on the host."
    )


def _check(lowered: Lowered) -> None:
    module = lowered.module
    parameters = len(lowered.inputs) + len(lowered.captures)
    if len(module.parameters) != parameters or len(module.results) != lowered.outputs + len(module.aliases):
        raise LoweringError(
            f"TensorFlow lowered `{module.name}` to {len(module.parameters)} parameters and {len(module.results)} "
            f"results, but the function has {parameters} inputs and captures, {lowered.outputs} outputs and "
            f"{len(module.aliases)} changed variables."
        )


def _name(function: Any) -> str:
    """A function's name as its author wrote it."""
    name = function.name.decode() if isinstance(function.name, bytes) else function.name
    return re.sub(r"^__(inference|forward)_|_\d+$", "", name)


def _refusal(function: Any, message: str) -> Exception:
    """What to raise where TensorFlow cannot lower a function, given what it said."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    # TensorFlow stops at the first op it cannot compile; the others are looked up.
    for node in _nodes(function.graph.as_graph_def()):
        if not tf_private.compiles(node.op) and node.op not in _INPUTS:
            found[node.op].append(node.name)
    for kind, node in re.findall(
        r"(\w+) \(No registered '\w+' OpKernel for XLA\w* devices.*?\{\{node ([^}]*)\}\}", message
    ):
        found[kind] = found.get(kind) or [node]
    if found:
        ops = [UnsupportedOp(kind, "TensorFlow cannot compile it", tuple(nodes)) for kind, nodes in found.items()]
        return UnsupportedOpsError(_name(function), tuple(ops))
    return LoweringError(
        f"TensorFlow could not lower `{_name(function)}` for the device. Nothing was run. It says: {message}"
    )


def _nodes(graph_def: Any) -> Iterator[Any]:
    """The nodes of a graph and of the functions in its library."""
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def
