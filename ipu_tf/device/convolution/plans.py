"""Chooses the cheapest convolution plan for a problem, from shapes alone; `explain` reports the choice."""

from __future__ import annotations

import functools
import itertools
import math

import jax

from ipu_tf.device.convolution import (
    filter_gradient,
    grouped,
    matmul,
    native_gradient_plan,
    native_plan,
    onednn,
    padded_plans,
    shared_taps,
    simplifications,
    transposed,
    xla_plans,
)
from ipu_tf.device.convolution.native import library
from ipu_tf.device.convolution.plan import NATIVE, ONEDNN, Plan
from ipu_tf.device.convolution.problem import CanonicalConvolution

_MODULES = (
    simplifications,
    matmul,
    filter_gradient,
    shared_taps,
    grouped,
    transposed,
    xla_plans,
    padded_plans,
    onednn,
    native_gradient_plan,
    native_plan,
)
#: Every plan. Of equally cheap ones the first is taken.
PLANS: tuple[Plan, ...] = tuple(itertools.chain.from_iterable(module.PLANS for module in _MODULES))


def callable_now() -> frozenset[str]:
    """Returns the native code that code which is traced now may call."""
    return frozenset(name for name, usable in ((ONEDNN, onednn.usable()), (NATIVE, library.usable())) if usable)


@functools.lru_cache(maxsize=4096)
def candidates(problem: CanonicalConvolution, calls: frozenset[str] = frozenset()) -> tuple[tuple[Plan, float], ...]:
    """Returns the applicable plans with their estimates in microseconds, cheapest first.

    The estimates are for two CPU cores and good for comparison only.

    Args:
        problem: what to compute.
        calls: the native code that may be called, see `callable_now`.
    """
    if simplifications.EMPTY.applies(problem):
        return ((simplifications.EMPTY, 0.0),)

    def best(part: CanonicalConvolution) -> float:
        return candidates(part, calls)[0][1]

    allowed = (plan for plan in PLANS if not plan.calls or plan.calls in calls)
    costs = [(plan, plan.cost(problem, best)) for plan in allowed if plan.applies(problem)]
    return tuple(sorted(costs, key=lambda entry: entry[1]))


def choose(problem: CanonicalConvolution, calls: frozenset[str] = frozenset()) -> Plan:
    """Returns the cheapest plan for `problem`.

    Example:
        >>> choose(CanonicalConvolution(8, 32, 16, (9,), (1,), (1,), ((0, 0),), (1,), (1,))).name
        'matmul'
    """
    return candidates(problem, calls)[0][0]


def solve(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution) -> jax.Array:
    """Computes the convolution of canonical operands by the cheapest plan.

    Args:
        lhs: of shape `problem.input_shape` and type `problem.dtype`.
        rhs: of shape `problem.kernel_shape` and type `problem.dtype`.
        problem: what to compute.

    Returns:
        An array of shape `problem.output_shape` and type `problem.out_dtype`.
    """
    return choose(problem, callable_now()).emit(lhs, rhs, problem, solve)


def explain(problem: CanonicalConvolution) -> str:
    """Describes the chosen plan, the reason, the estimated costs of the others, and whether there are native kernels.

    Example:
        >>> print(explain(CanonicalConvolution(8, 32, 16, (9,), (1,), (1,), ((0, 0),), (1,), (1,))))
        8x9x32 * 1x32x16 -> 8x9x16 float32: matmul, about ... us
          each result sees one position, or the whole input: a matrix product without copies
          instead of ..., about ... us
          ...native kernels...
    """
    (plan, cost), *others = candidates(problem, callable_now())
    lines = [f"{problem}: {plan.name}, about {math.ceil(cost)} us", f"  {plan.why}"]
    lines += [f"  instead of {other.name}, about {math.ceil(cost)} us" for other, cost in others]
    return "\n".join([*lines, f"  {library.described()}"])
