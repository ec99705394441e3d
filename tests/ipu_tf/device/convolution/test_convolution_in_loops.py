"""Convolutions where the device's programs have them: in loops, over replicas, in a whole training step."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import PartitionSpec

from benchmarks import convolution_step as cnn
from ipu_tf.device import portable
from ipu_tf.device.convolution import filter_gradient, grouped, shared_taps
from ipu_tf.device.convolution import windows as convolution_windows
from ipu_tf.device.convolution.blocks import block_size, sum_over_blocks
from ipu_tf.device.convolution.convolve import ConvLayout, canonicalize, convolution
from ipu_tf.device.convolution.padded_plans import PREPADDED
from ipu_tf.device.convolution.plan import NATIVE, Plan
from ipu_tf.device.convolution.plans import callable_now, choose, solve
from ipu_tf.device.convolution.problem import CanonicalConvolution
from ipu_tf.device.convolution.xla_plans import CANONICAL
from tests.helpers.exact_sums import small_integers
from tests.helpers.library_jit import jit
from tests.helpers.plain_convolution import by_definition

ONES, SAME, NONE = (1, 1), ((1, 1), (1, 1)), ((0, 0), (0, 0))
#: The layouts of a filter's gradient and of an input's, as TensorFlow lowers them.
FILTER = ConvLayout(3, 0, (1, 2), 0, 3, (1, 2), 2, 3, (0, 1))
INPUT = ConvLayout(0, 3, (1, 2), 3, 2, (0, 1), 0, 3, (1, 2))


def random(*shape: int, seed: int = 0) -> jax.Array:
    """Normal numbers."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def close(result: jax.Array, expected: np.ndarray) -> None:
    """Equal but for the rounding of sums."""
    assert result.shape == expected.shape
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * scale)


def convolve(lhs: jax.Array, rhs: jax.Array, layout: ConvLayout, **window: Any) -> jax.Array:
    """The device's convolution, by default without padding, strides, dilation, reversal and groups."""
    defaults = {"window_strides": ONES, "padding": NONE, "lhs_dilation": ONES, "rhs_dilation": ONES}
    return convolution(lhs, rhs, window_reversal=(False, False), dimension_numbers=layout, **(defaults | window))


def plain(lhs: jax.Array, rhs: jax.Array, layout: ConvLayout, **window: Any) -> np.ndarray:
    """By its definition, of arrays brought into canonical order."""
    given = {"window_strides": ONES, "padding": NONE, "lhs_dilation": ONES, "rhs_dilation": ONES, **window}
    problem = canonicalize(lhs.shape, rhs.shape, "float32", dimension_numbers=layout, **given)
    result = by_definition(lhs.transpose(layout.input), rhs.transpose(layout.kernel), problem)
    return result.transpose(np.argsort(layout.output))


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], ConvLayout, dict[str, Any]]] = {
    "forward": ((8, 9, 9, 8), (3, 3, 8, 16), ConvLayout.canonical(2), {"padding": SAME}),
    "few features": ((8, 9, 9, 3), (3, 3, 3, 32), ConvLayout.canonical(2), {"padding": SAME}),
    "filter gradient": ((8, 9, 9, 8), (8, 7, 7, 16), FILTER, {}),
    "filter gradient, strided": ((8, 9, 9, 8), (8, 4, 4, 16), FILTER, {"rhs_dilation": (2, 2)}),
    "input gradient": ((8, 7, 7, 16), (3, 3, 8, 16), INPUT, {"padding": ((2, 2), (2, 2))}),
    "input gradient, strided": (
        (8, 4, 4, 16),
        (3, 3, 8, 16),
        INPUT,
        {"padding": SAME, "lhs_dilation": (2, 2)},
    ),
    "depthwise": ((8, 9, 9, 8), (3, 3, 1, 8), ConvLayout.canonical(2), {"feature_group_count": 8}),
    "depthwise filter gradient": ((8, 9, 9, 8), (8, 7, 7, 8), FILTER, {"batch_group_count": 8}),
    "grouped filter gradient": ((8, 9, 9, 32), (8, 7, 7, 32), FILTER, {"batch_group_count": 2}),
}


@pytest.fixture(params=["all", "onednn", "portable"])
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[frozenset[str]]:
    """With oneDNN and native kernels, where this machine has them; without these; without either."""
    if request.param == "onednn":
        monkeypatch.setenv("IPU_TF_NATIVE", "0")
    with portable.without_native_code() if request.param == "portable" else contextlib.nullcontext():
        yield callable_now()


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("name", CASES)
def test_a_loop_is_left_no_convolution_but_canonical_ones(name: str) -> None:
    """Any other form runs in XLA:CPU's naive loops there. The results are those of the definition."""
    left, right, layout, window = CASES[name]
    lhs, rhs = random(*left), random(*right, seed=1)

    def loop(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        start = convolve(lhs, rhs, layout, **window)
        return lax.fori_loop(0, 2, lambda i, total: total + convolve(lhs + i, rhs, layout, **window), start * 0)

    compiled = jit(loop).lower(lhs, rhs).compile()
    forms = set(re.findall(r"dim_labels=(\S+?),? ", compiled.as_text() or ""))
    assert forms <= {"b01f_01io->b01f"}
    close(compiled(lhs, rhs), plain(lhs, rhs, layout, **window) + plain(lhs + 1, rhs, layout, **window))


@pytest.mark.parametrize("module", [filter_gradient, shared_taps])
@settings(max_examples=15, deadline=None)
@given(
    examples=st.integers(1, 9),
    features=st.tuples(st.sampled_from([1, 3, 17]), st.integers(1, 4)),
    taps=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    block=st.sampled_from([1, 2, 3]),
)
def test_filter_gradients_by_blocks_of_examples(
    module: Any, examples: int, features: tuple[int, int], taps: tuple[int, int], dilation: tuple[int, int], block: int
) -> None:
    """Few examples at a time, odd ones left over, taps one by one and in a loop."""
    strides = tuple(reversed(dilation))
    if module is shared_taps:
        dilation = (1, dilation[1])  # rows that the sum skips would be written out for nothing
    size = tuple(3 * d + (t - 1) * s + 1 for d, t, s in zip(dilation, taps, strides, strict=True))
    problem = CanonicalConvolution(
        features[0],
        examples,
        features[1],
        size,
        (4, 4),
        strides,
        NONE,
        ONES,
        dilation,
        leading_contraction=True,
    )
    lhs, rhs = (jnp.asarray(small_integers(*shape)) for shape in (problem.input_shape, problem.kernel_shape))
    [plan] = module.PLANS
    assert plan.applies(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "block_size", lambda rows, most: min(rows, block))
        patch.setattr(convolution_windows, "MOST_UNROLLED", 6)
        result = jit(lambda lhs, rhs: plan.emit(lhs, rhs, problem, solve))(lhs, rhs)
    expected = plain(lhs, rhs, ConvLayout.canonical(2), window_strides=strides, rhs_dilation=dilation)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("block", [1, 2, 5])
def test_depthwise_filter_gradients_by_blocks_of_examples(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    window = {"padding": SAME, "batch_group_count": 3}
    lhs, rhs = random(5, 6, 6, 6), random(5, 6, 6, 12, seed=1)
    problem = canonicalize(
        lhs.shape,
        rhs.shape,
        "float32",
        window_strides=ONES,
        lhs_dilation=ONES,
        rhs_dilation=ONES,
        dimension_numbers=FILTER,
        padding=SAME,
        batch_group_count=3,
    )
    monkeypatch.setattr(grouped, "block_size", lambda rows, most: block)
    plan = grouped.MULTIPLY_REDUCE
    operands = lhs.transpose(FILTER.input), rhs.transpose(FILTER.kernel)
    result = jit(lambda a, b: plan.emit(a, b, problem, solve))(*operands)
    close(result.transpose(np.argsort(FILTER.output)), plain(lhs, rhs, FILTER, **window))


@given(rows=st.integers(1, 100), most=st.integers(-1, 30))
def test_blocks_are_neither_too_large_nor_needlessly_uneven(rows: int, most: int) -> None:
    size = block_size(rows, most)
    limit = max(1, min(rows, most))
    assert limit / 2 <= size <= limit
    assert rows % size == 0 or all(rows % smaller for smaller in range(limit // 2 + 1, limit + 1))


@pytest.mark.parametrize("size", [1, 3, 4, 7, 9])
def test_a_sum_over_blocks(size: int) -> None:
    """A NaN in the first row stays where it belongs."""
    rows = random(7, 4).at[0, 1].set(jnp.nan)
    result = jit(lambda rows: sum_over_blocks(lambda part: part.sum(0), (rows,), size))(rows)
    np.testing.assert_allclose(result, rows.sum(0), rtol=1e-5)


@pytest.mark.parametrize("name", ["forward", "filter gradient", "depthwise filter gradient"])
def test_over_replicas(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`shard_map` checks that loops keep which values differ between replicas; `vmap` has its own rules."""
    monkeypatch.setattr(filter_gradient, "CHUNK", 1)
    monkeypatch.setattr(grouped, "CHUNK", 1)
    left, right, layout, window = CASES[name]
    lhs, rhs = random(2, *left), random(2, *right, seed=1)

    def one(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        return convolve(lhs, rhs, layout, **window)

    mesh = jax.make_mesh((1,), ("replica",), axis_types=(jax.sharding.AxisType.Auto,))
    part = PartitionSpec("replica")
    mapped = jax.shard_map(lambda a, b: one(a[0], b[0])[None], mesh=mesh, in_specs=part, out_specs=part)
    expected = np.stack([plain(a, b, layout, **window) for a, b in zip(lhs, rhs, strict=True)])
    close(jit(mapped)(lhs[:1], rhs[:1]), expected[:1])
    close(jit(jax.vmap(one))(lhs, rhs), expected)


def test_other_backends_get_the_convolution_as_it_is() -> None:
    left, right, layout, window = CASES["filter gradient"]
    traced = jax.make_jaxpr(lambda a, b: convolve(a, b, layout, platform="gpu", **window))(
        random(*left), random(*right)
    )
    assert [str(equation.primitive) for equation in traced.eqns] == ["conv_general_dilated"]
    assert traced.eqns[0].params["dimension_numbers"].lhs_spec == (3, 0, 1, 2)


def test_64_bit_floats() -> None:
    with jax.enable_x64(True):
        lhs, rhs = (np.random.default_rng(0).normal(size=s) for s in ((4, 8, 8, 3), (3, 3, 3, 8)))
        result = convolve(jnp.asarray(lhs), jnp.asarray(rhs), ConvLayout.canonical(2), padding=SAME)
        assert result.dtype == jnp.float64
        expected = np.zeros((4, 8, 8, 8))
        padded = np.pad(lhs, ((0, 0), *SAME, (0, 0)))
        for i, j in np.ndindex(3, 3):
            expected += padded[:, i : i + 8, j : j + 8] @ rhs[i, j]
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "problem",
    [
        CanonicalConvolution(0, 2, 3, (5,), (3,), (1,), ((0, 0),), (1,), (1,)),
        CanonicalConvolution(2, 2, 3, (2,), (3,), (1,), ((0, 0),), (1,), (1,)),
        CanonicalConvolution(2, 0, 3, (5,), (3,), (1,), ((0, 0),), (1,), (1,)),
    ],
    ids=["no rows", "no room", "no features"],
)
def test_nothing_to_sum(problem: CanonicalConvolution) -> None:
    result = solve(jnp.ones(problem.input_shape), jnp.ones(problem.kernel_shape), problem)
    np.testing.assert_array_equal(result, np.zeros(problem.output_shape))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"window_strides": (1,)}, "needs 2 strides"),
        ({"lhs_dilation": (0, 1)}, "input_dilation of a convolution must be 1 or more"),
        ({"feature_group_count": 2}, "8 / 2 input features"),
        ({"feature_group_count": 2, "batch_group_count": 2}, "must be 1 and the other 1 or more"),
        ({"batch_group_count": 3}, "must divide into 3 groups"),
        ({"dimension_numbers": dataclasses.replace(INPUT, input_batch=3)}, "each of 0 to 3 once"),
    ],
)
def test_what_does_not_belong_together_is_refused(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "window_strides": ONES,
        "padding": NONE,
        "lhs_dilation": ONES,
        "rhs_dilation": ONES,
    }
    arguments |= {"dimension_numbers": ConvLayout.canonical(2)} | changes
    with pytest.raises(ValueError, match=message):
        canonicalize((8, 5, 5, 8), (3, 3, 8, 16), "float32", **arguments)


@pytest.mark.usefixtures("calls")
def test_the_reference_network_in_a_loop_takes_the_steps_of_jax() -> None:
    """Forward and backward, convolutions and pooling, as TensorFlow lowers them."""
    params, (images, labels, key) = cnn.first_params(), cnn.batch()

    def loop(params: cnn.Params) -> cnn.Params:
        return lax.fori_loop(0, 2, lambda i, p: cnn.step_by_hand(cnn.OURS, p, images, labels, key), params)

    step = jit(cnn.step_by_grad)
    expected = step(step(params, images, labels, key), images, labels, key)
    for result, wanted in zip(jax.tree.leaves(jit(loop)(params)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def test_plans_of_the_reference_network(calls: frozenset[str]) -> None:
    """Those measured to be the fastest; a change of the estimates should be a decision."""
    taken = {}
    for number, (size, before, after, pad, _) in enumerate(cnn.LAYERS, 1):
        out = size + 2 * pad - 2
        image, result = (cnn.BATCH, size, size, before), (cnn.BATCH, out, out, after)
        for kind, left, right, layout, window in (
            ("forward", image, (3, 3, before, after), cnn.FORWARD, cnn.window(pad)),
            ("filter", image, result, cnn.FILTER, cnn.window(pad)),
            ("input", result, (3, 3, before, after), cnn.INPUT, cnn.window(2 - pad)),
        ):
            problem = canonicalize(left, right, "float32", **window, dimension_numbers=layout)
            taken[number, kind] = choose(problem, calls).name
    forward = ["patches", "guarded", "canonical", "guarded"]
    by_call = ["native dense" if NATIVE in calls else "onednn"] * 4
    assert [taken[n, "forward"] for n in range(1, 5)] == (by_call if calls else forward)
    filters = ["native filter gradient"] * 4 if NATIVE in calls else ["filter gradient", *["shared taps"] * 3]
    assert [taken[n, "filter"] for n in range(1, 5)] == filters
    gradients = ["prepadded", "canonical", "prepadded"]
    assert [taken[n, "input"] for n in range(2, 5)] == (by_call[1:] if calls else gradients)


def labels_of(problem: CanonicalConvolution, plan: Plan) -> set[str]:
    """The layouts of the convolutions that XLA compiles a plan to, in a loop."""

    def loop(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        with portable.without_native_code():
            return lax.fori_loop(0, 3, lambda _, x: plan.emit(x, rhs, problem, solve), lhs)

    given = (jnp.ones(problem.input_shape), jnp.ones(problem.kernel_shape))
    return set(re.findall(r"dim_labels=(\S+?->\w+)", jit(loop).lower(*given).compile().as_text() or ""))


def test_inputs_that_are_smaller_than_the_window_stay_with_the_fast_kernels() -> None:
    """XLA exchanges input and kernel there: ResNet-50 with images of 64 x 64 took 0.8 of its step for six of them.

    If `canonical` is in its own layout too, XLA does so no more, and `is_swapped` can go.
    """
    small = CanonicalConvolution(4, 32, 32, (2, 2), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1))
    canonical = {"b01f_01io->b01f"}
    assert labels_of(small, CANONICAL).isdisjoint(canonical)
    assert labels_of(small, PREPADDED) == canonical
    sequence = CanonicalConvolution(4, 32, 32, (2,), (3,), (1,), ((1, 1),), (1,), (1,))
    assert labels_of(sequence, CANONICAL).isdisjoint({"b0f_0io->b0f"})
    assert labels_of(sequence, PREPADDED) == {"b0f_0io->b0f"}
    for size, features in ((2, 512), (2, 64), (1, 512)):
        for each in (small.but(input=(size, size)), sequence.but(input=(size,))):
            problem = each.but(in_features=features, out_features=features)
            assert choose(problem).name in ("patches", "prepadded"), problem
