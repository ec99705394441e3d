"""Chooses the cheapest convolution plan for a problem, from shapes alone; `explain` reports the choice."""

from __future__ import annotations

import functools
import itertools
import math

import jax

from ipu_tf.device.convolution import filter_gradient as convolution_filter_gradient
from ipu_tf.device.convolution import grouped as convolution_grouped
from ipu_tf.device.convolution import matmul as convolution_matmul
from ipu_tf.device.convolution import onednn
from ipu_tf.device.convolution import onednn_plan as convolution_native
from ipu_tf.device.convolution import shared_taps as convolution_shared_taps
from ipu_tf.device.convolution import simplifications as convolution_shapes
from ipu_tf.device.convolution import transposed as convolution_transposed
from ipu_tf.device.convolution import xla_plans as convolution_library
from ipu_tf.device.convolution.plan import Plan
from ipu_tf.device.convolution.problem import CanonicalConvolution

_MODULES = (
    convolution_shapes,
    convolution_matmul,
    convolution_filter_gradient,
    convolution_shared_taps,
    convolution_grouped,
    convolution_transposed,
    convolution_library,
    convolution_native,
)
#: Every plan. Of equally cheap ones the first is taken.
PLANS: tuple[Plan, ...] = tuple(itertools.chain.from_iterable(module.PLANS for module in _MODULES))


@functools.lru_cache(maxsize=4096)
def candidates(problem: CanonicalConvolution, native: bool = False) -> tuple[tuple[Plan, float], ...]:
    """Returns the applicable plans with their estimates in microseconds, cheapest first.

    The estimates are for two CPU cores and good for comparison only.

    Args:
        problem: what to compute.
        native: whether code may be called that programs kept on disk cannot call.
    """
    if convolution_shapes.EMPTY.applies(problem):
        return ((convolution_shapes.EMPTY, 0.0),)

    def best(part: CanonicalConvolution) -> float:
        return candidates(part, native)[0][1]

    allowed = (plan for plan in PLANS if native or not plan.native)
    costs = [(plan, plan.cost(problem, best)) for plan in allowed if plan.applies(problem)]
    return tuple(sorted(costs, key=lambda entry: entry[1]))


def choose(problem: CanonicalConvolution, native: bool = False) -> Plan:
    """Returns the cheapest plan for `problem`.

    Example:
        >>> choose(CanonicalConvolution(8, 32, 16, (9,), (1,), (1,), ((0, 0),), (1,), (1,))).name
        'matmul'
    """
    return candidates(problem, native)[0][0]


def solve(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution) -> jax.Array:
    """Computes the convolution of canonical operands by the cheapest plan.

    Args:
        lhs: of shape `problem.input_shape` and type `problem.dtype`.
        rhs: of shape `problem.kernel_shape` and type `problem.dtype`.
        problem: what to compute.

    Returns:
        An array of shape `problem.output_shape` and type `problem.out_dtype`.
    """
    return choose(problem, onednn.usable()).emit(lhs, rhs, problem, solve)


def explain(problem: CanonicalConvolution) -> str:
    """Describes the chosen plan, the reason, and the estimated costs of the others.

    Example:
        >>> print(explain(CanonicalConvolution(8, 32, 16, (9,), (1,), (1,), ((0, 0),), (1,), (1,))))
        8x9x32 * 1x32x16 -> 8x9x16 float32: matmul, about ... us
          each result sees one position, or the whole input: a matrix product without copies
          instead of canonical, about ... us
    """
    (plan, cost), *others = candidates(problem, onednn.usable())
    lines = [f"{problem}: {plan.name}, about {math.ceil(cost)} us", f"  {plan.why}"]
    lines += [f"  instead of {other.name}, about {math.ceil(cost)} us" for other, cost in others]
    return "\n".join(lines)
