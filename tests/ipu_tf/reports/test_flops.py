"""FLOPs and bytes of operations and layers are those of XLA's cost analysis of the same function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from ipu_tf.device.convolution.convolve import ConvLayout, convolution
from ipu_tf.device.program.program import Program, StraightLinePart
from ipu_tf.reports import Part, flops_of, layer_costs, report_of
from ipu_tf.reports.layers import KnownNames, layer_of

LAYOUT = ("NHWC", "HWIO", "NHWC")


def array(*shape: int) -> jax.Array:
    """An array of a shape."""
    return jnp.asarray(np.random.default_rng(sum(shape)).random(shape, np.float32))


def xla_costs(function: Callable[..., Any], *arguments: Any) -> dict[str, float]:
    """What XLA counts in a function as it is written, before it optimizes it."""
    found = jax.jit(function).lower(*arguments).cost_analysis()
    assert isinstance(found, dict)
    return found


def part_of_function(function: Callable[..., Any], *arguments: jax.Array) -> Part:
    """The report on a program of a function of some arrays."""
    types = tuple(jax.ShapeDtypeStruct(each.shape, each.dtype) for each in arguments)
    part = StraightLinePart(
        lambda live, hidden, _: ((function(*live),), hidden, {}), tuple(range(len(types))), (len(types),)
    )
    return report_of(Program("function", types, (part,), (len(types),), {})).parts[0]


def stock(stride: int, padding: str, groups: int = 1) -> Callable[..., jax.Array]:
    """JAX's convolution."""
    return lambda x, k: lax.conv_general_dilated(
        x, k, (stride, stride), padding, dimension_numbers=LAYOUT, feature_group_count=groups
    )


def ours(stride: int, padding: str, groups: int = 1) -> Callable[..., jax.Array]:
    """The device's convolution, by whichever plan."""

    def function(x: jax.Array, k: jax.Array) -> jax.Array:
        around = lax.padtype_to_pads(x.shape[1:3], k.shape[:2], (stride, stride), padding)
        return convolution(
            x,
            k,
            window_strides=(stride, stride),
            padding=around,
            lhs_dilation=(1, 1),
            rhs_dilation=(1, 1),
            window_reversal=(False, False),
            dimension_numbers=ConvLayout.canonical(2),
            feature_group_count=groups,
        )

    return function


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda a, b: a @ b, ((64, 32), (32, 48))),
        (lambda a, b: jnp.einsum("bij,bjk->bik", a, b), ((3, 8, 5), (3, 5, 7))),
        (lambda a: a * a + a, ((100,),)),
        (lambda a: jnp.sum(a, 0), ((100, 10),)),
        (lambda a: jnp.max(a), ((100, 10),)),
        (stock(1, "SAME"), ((2, 9, 9, 8), (3, 3, 8, 16))),
        (stock(2, "SAME"), ((2, 9, 9, 8), (3, 3, 8, 16))),
        (stock(1, "VALID", 4), ((2, 9, 9, 8), (3, 3, 2, 16))),
    ],
)
def test_operations_have_xlas_flops(function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> None:
    arguments = [array(*shape) for shape in shapes]
    wanted = xla_costs(function, *arguments)
    assert flops_of(function, *arguments) == wanted["flops"] > 0
    assert sum(each.flops for each in part_of_function(function, *arguments).operations) == wanted["flops"]


@pytest.mark.parametrize(
    ("stride", "padding", "x", "kernel", "groups"),
    [
        (1, "SAME", (4, 16, 16, 8), (3, 3, 8, 16), 1),
        (2, "SAME", (2, 9, 9, 3), (3, 3, 3, 16), 1),
        (1, "VALID", (8, 9, 9, 16), (1, 1, 16, 32), 1),
        (1, "VALID", (2, 9, 9, 8), (3, 3, 2, 16), 4),
    ],
)
def test_convolutions_have_xlas_flops_by_whichever_plan(
    stride: int, padding: str, x: tuple[int, ...], kernel: tuple[int, ...], groups: int
) -> None:
    given = array(*x), array(*kernel)
    wanted = xla_costs(stock(stride, padding, groups), *given)["flops"]
    part = part_of_function(ours(stride, padding, groups), *given)
    [cost] = layer_costs(part)
    assert cost.flops == wanted
    assert any(" by " in each.name and each.flops == wanted for each in part.operations)


def test_bytes_accessed_are_those_of_operands_and_results() -> None:
    given = array(64, 32), array(32, 48)
    wanted = xla_costs(lambda a, b: a @ b, *given)["bytes accessed"]
    [operation] = part_of_function(lambda a, b: a @ b, *given).operations
    assert operation.bytes_accessed == wanted == 4 * (64 * 32 + 32 * 48 + 64 * 48)


def test_a_training_step_has_about_xlas_flops() -> None:
    def loss(weights: tuple[jax.Array, ...], x: jax.Array) -> jax.Array:
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return jnp.sum(x * x)

    given = (array(64, 64), array(64, 64)), array(32, 64)
    wanted = xla_costs(jax.value_and_grad(loss), *given)
    # XLA counts exponentials and the like apart from others.
    every = wanted["flops"] + wanted["transcendentals"]
    assert flops_of(jax.value_and_grad(loss), *given) == pytest.approx(every, rel=0.02)


COMPARISONS = {"lt": lax.lt, "le": lax.le, "gt": lax.gt, "ge": lax.ge, "ne": lax.ne}
PRODUCT = 2 * 4 * 4 * 4  # FLOPs of each iteration below


@pytest.mark.parametrize(
    ("first", "name", "limit", "step"),
    [
        (0, "lt", 20, 1), (0, "lt", 20, 3), (0, "lt", 21, 3), (20, "lt", 20, 1), (-5, "le", 7, 4), (9, "gt", -3, -2),
        (9, "ge", -3, -4), (9, "ge", -3, -5), (1, "ne", 13, 4), (5, "ne", 5, 1), (30, "le", 2, 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("swapped", [False, True])
def test_a_loop_counts_as_often_as_it_runs(first: int, name: str, limit: int, step: int, swapped: bool) -> None:
    compare = COMPARISONS[name]
    opposite = COMPARISONS[{"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "ne": "ne"}[name]]

    def function(x: jax.Array) -> jax.Array:
        last, x = lax.while_loop(
            lambda carry: opposite(limit, carry[0]) if swapped else compare(carry[0], limit),
            lambda carry: (carry[0] + step, carry[1] @ x),
            (first, x),
        )
        # A second loop, whose end is the first's, and which has another end too.
        return lax.while_loop(
            lambda carry: (carry[0] != last) & (carry[1] < 3),
            lambda carry: (carry[0] + step, carry[1] + 1, carry[2] @ x),
            (first, 0, x),
        )[2]

    trips = 0
    while compare(first + trips * step, limit):
        trips += 1
    wanted = PRODUCT * (trips + min(trips, 3))
    assert flops_of(function, array(4, 4)) == wanted
    loops = [each for each in part_of_function(function, array(4, 4)).operations if each.body]
    assert [each.trips for each in loops] == [trips, min(trips, 3)]
    assert sum(each.flops for each in loops) == wanted


def test_a_loop_whose_length_depends_on_data_counts_once() -> None:
    def function(x: jax.Array) -> jax.Array:
        steps = jnp.sum(x).astype(jnp.int32)
        x = lax.while_loop(lambda carry: carry[0] < steps, lambda carry: (carry[0] + 1, carry[1] @ x), (0, x))[1]
        x = lax.while_loop(lambda carry: carry[0] < 9, lambda carry: (carry[0] * 2 + 1, carry[1] @ x), (0, x))[1]
        return lax.while_loop(lambda carry: jnp.sum(carry) < 9, lambda carry: carry @ x, x)

    loops = [each for each in part_of_function(function, array(4, 4)).operations if each.body]
    assert [(each.trips, each.flops) for each in loops[:2]] == [(None, PRODUCT)] * 2
    assert loops[2].trips is None


def test_what_always_holds_ends_no_loop() -> None:
    """One number is even and the other odd, also where they wrap around."""

    def loops(x: jax.Array) -> jax.Array:
        begin = (0, jnp.uint32(0), x)
        grown = lambda carry: (carry[0] + 4, carry[1] + 2, carry[2] @ x)  # noqa: E731
        x = lax.while_loop(lambda carry: (carry[0] < 9) & (carry[1] != 1), grown, begin)[2]
        return lax.while_loop(lambda carry: carry[1] != 1, grown, begin)[2] + x

    loops_of = [each for each in part_of_function(loops, array(4, 4)).operations if each.body]
    assert [each.trips for each in loops_of] == [3, None]


@pytest.mark.parametrize(
    ("operation", "layer"),
    [
        ("model/dense/MatMul/dot_general", "model/dense"),
        ("gradient_tape/model_1/block_2/dense_1/MatMul/dot_general", "model/block/dense"),
        ("jvp(model)/block/dense/dot_general", "model/block/dense"),
        ("transpose(jvp(block))/dense/dot_general", "block/dense"),
        ("model/dropout_1/mul/mul", "model/dropout_1"),
        ("model_1/dropout_1_2/mul/mul", "model/dropout_1"),
        ("other_1/dropout_1/mul/mul", "other_1/dropout_1"),
        ("adam/Sub_26/sub", "adam"),
        ("adam/truediv_26/div", "adam"),
        ("add", "(no layer)"),
    ],
)
def test_layers_of_operations_by_name(operation: str, layer: str) -> None:
    known = KnownNames(frozenset({"dense"}), frozenset({"model"}), frozenset({"adam"}))
    assert layer_of(operation, known) == layer


def test_what_nobody_reads_is_not_computed() -> None:
    def function(a: jax.Array, b: jax.Array) -> jax.Array:
        unused = jnp.tanh(a @ b)
        return jnp.sum(a, 0) + 0 * len(unused)

    part = part_of_function(function, array(64, 32), array(32, 48))
    assert sum(each.flops for each in part.operations) == 63 * 32 + 32
    assert not any("dot_general" in value.name for value in part.values)


def test_reductions_and_scatters_by_a_function() -> None:
    """The function of two numbers is no call: it is applied to each number, and the results are whole arrays."""
    table, places, rows = array(50, 8), jnp.arange(16) % 7, array(16, 8)
    assert flops_of(lambda table, rows: table.at[places].add(rows), table, rows) == rows.size
    x = array(64, 4)
    starts = jnp.float32(-jnp.inf), jnp.float32(jnp.inf)

    def largest(x: Any) -> Any:
        return lax.reduce((x, -x), starts, least, [1])

    part = part_of_function(lambda x: largest(x)[0], x)
    assert [each.name.rpartition("/")[2] for each in part.operations].count("reduce") == 1
    assert max(value.bytes for value in part.values if "reduce" in value.name) == 64 * 4
    assert flops_of(largest, x) >= 64 * 3


def least(first: Any, second: Any) -> Any:
    """A reduction of two arrays, as that of `argmax` is."""
    return jnp.maximum(first[0], second[0]), jnp.minimum(first[1], second[1])
