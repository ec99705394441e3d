"""Every way to compute a convolution gives what its definition gives, for random shapes."""

from __future__ import annotations

import collections
import contextlib
import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ipu_tf.device import portable
from ipu_tf.device.convolution.convolve import ConvLayout, convolution
from ipu_tf.device.convolution.plan import NATIVE, ONEDNN
from ipu_tf.device.convolution.plans import PLANS, callable_now, candidates, choose, explain, solve
from ipu_tf.device.convolution.problem import CanonicalConvolution
from tests.helpers.exact_sums import small_integers
from tests.helpers.library_jit import jit
from tests.helpers.plain_convolution import by_definition

HERE = tuple(plan for plan in PLANS if not plan.calls or plan.calls in callable_now())
"""The plans that this machine can run."""
SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def problems(draw: st.DrawFn, rank: int | None = None) -> CanonicalConvolution:
    """Small convolutions of any kind."""
    rank = rank or draw(st.integers(1, 3))
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    batch_groups = draw(st.sampled_from([1, 1, 1, 2])) if groups == 1 else 1

    def each(values: st.SearchStrategy[Any]) -> tuple[Any, ...]:
        return tuple(draw(values) for _ in range(rank))

    depthwise = groups > 1 and draw(st.booleans())
    group_features = 1 if depthwise else draw(st.integers(1, 3))
    return CanonicalConvolution(
        batch=draw(st.integers(1, 3)) * batch_groups,
        in_features=group_features * groups,
        out_features=draw(st.integers(1, 3)) * groups * batch_groups,
        input=each(st.integers(1, 7)),
        window=each(st.integers(1, 3)),
        strides=each(st.sampled_from([1, 1, 2, 3])),
        padding=each(st.tuples(st.integers(-1, 3), st.integers(-1, 3))),
        input_dilation=each(st.sampled_from([1, 1, 2])),
        window_dilation=each(st.sampled_from([1, 1, 2])),
        feature_groups=groups,
        batch_groups=batch_groups,
        leading_contraction=draw(st.booleans()),
    )


def operands(problem: CanonicalConvolution) -> tuple[np.ndarray, np.ndarray]:
    """Random input and kernel."""
    rng = np.random.default_rng(0)
    lhs = rng.normal(size=problem.input_shape).astype(np.float32)
    return lhs, rng.normal(size=problem.kernel_shape).astype(np.float32)


def exact_operands(problem: CanonicalConvolution) -> tuple[np.ndarray, np.ndarray]:
    """Random input and kernel whose convolution has the same bits in any order."""
    return small_integers(*problem.input_shape), small_integers(*problem.kernel_shape, seed=1)


def roomy(problem: CanonicalConvolution) -> bool:
    """Whether cropping leaves something of the input; XLA, which crops it in some plans, is undefined otherwise."""
    return all(n + low + high > 0 for n, (low, high) in zip(problem.input, problem.padding, strict=True))


@SETTINGS
@given(problem=problems())
def test_every_plan_that_applies_is_right(problem: CanonicalConvolution) -> None:
    assume(roomy(problem))
    lhs, rhs = exact_operands(problem)
    expected = by_definition(lhs, rhs, problem)
    assert expected.shape == problem.output_shape
    plans = [plan for plan in HERE if plan.applies(problem)] if expected.size else [choose(problem)]
    assert plans
    for plan in plans:
        result = np.asarray(jit(lambda a, b, plan=plan: plan.emit(a, b, problem, solve))(lhs, rhs))
        np.testing.assert_array_equal(result, expected, err_msg=f"{plan.name}: {problem}")


ONES = (1, 1)
SAME = ((1, 1), (1, 1))
VALID = ((0, 0), (0, 0))
LAYERS = {
    "first": CanonicalConvolution(8, 3, 32, (12, 12), (3, 3), ONES, SAME, ONES, ONES),
    "same": CanonicalConvolution(8, 16, 16, (12, 12), (3, 3), ONES, SAME, ONES, ONES),
    "valid": CanonicalConvolution(8, 16, 16, (12, 12), (3, 3), ONES, VALID, ONES, ONES),
    "valid, large": CanonicalConvolution(64, 32, 32, (20, 20), (3, 3), ONES, VALID, ONES, ONES),
    "full": CanonicalConvolution(8, 32, 32, (12, 12), (3, 3), ONES, ((2, 2), (2, 2)), ONES, ONES),
    "1x1": CanonicalConvolution(8, 16, 32, (12, 12), ONES, ONES, VALID, ONES, ONES),
    "1x1, filters": CanonicalConvolution(
        32, 8, 32, (12, 12), (12, 12), ONES, VALID, ONES, ONES, leading_contraction=True
    ),
    "strided": CanonicalConvolution(8, 16, 16, (12, 12), (3, 3), (2, 2), ((1, 0), (1, 0)), ONES, ONES),
    "dilated": CanonicalConvolution(8, 16, 16, (12, 12), (3, 3), ONES, ((2, 2), (2, 2)), ONES, (2, 2)),
    "transposed": CanonicalConvolution(8, 16, 16, (6, 6), (3, 3), ONES, ((1, 2), (1, 2)), (2, 2), ONES),
    "transposed tiles": CanonicalConvolution(8, 16, 16, (6, 6), (2, 2), ONES, SAME, (2, 2), ONES),
    "depthwise": CanonicalConvolution(8, 24, 24, (12, 12), (3, 3), ONES, SAME, ONES, ONES, 24),
    "grouped": CanonicalConvolution(8, 24, 48, (12, 12), (3, 3), ONES, SAME, ONES, ONES, 4),
    "cropped": CanonicalConvolution(1, 3, 1, (2, 4), (1, 3), ONES, ((0, 0), (-1, 1)), ONES, ONES),
    "cropped away": CanonicalConvolution(1, 3, 1, (5, 1), (3, 1), ONES, ((0, 0), (-1, 1)), ONES, ONES),
    "batch of few": CanonicalConvolution(1, 32, 32, (8, 8), (3, 3), ONES, SAME, ONES, ONES),
    "filter gradient": CanonicalConvolution(
        16, 64, 32, (14, 14), (12, 12), ONES, VALID, ONES, ONES, leading_contraction=True
    ),
}


@pytest.mark.parametrize("calls", [(), (ONEDNN, NATIVE)], ids=["portable", "native"])
@pytest.mark.parametrize("problem", LAYERS.values(), ids=LAYERS)
def test_shapes_of_real_layers_by_every_plan(problem: CanonicalConvolution, calls: tuple[str, ...]) -> None:
    lhs, rhs = operands(problem)
    expected = by_definition(lhs, rhs, problem)
    scale = float(np.abs(expected).max())
    for plan, _ in candidates(problem, callable_now().intersection(calls)):
        with contextlib.nullcontext() if calls else portable.without_native_code():
            result = np.asarray(jit(lambda a, b, plan=plan: plan.emit(a, b, problem, solve))(lhs, rhs))
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5 * scale, err_msg=plan.name)


def test_the_tests_reach_every_plan() -> None:
    """Random problems alone would not tell if a plan never applied."""
    reached: collections.Counter[str] = collections.Counter()

    @settings(max_examples=400, deadline=None, database=None, derandomize=True)
    @given(problem=problems())
    def collect(problem: CanonicalConvolution) -> None:
        reached.update(plan.name for plan in PLANS if plan.applies(problem))

    collect()
    reached.update(plan.name for problem in LAYERS.values() for plan in PLANS if plan.applies(problem))
    assert {plan.name for plan in PLANS} - set(reached) == set()


@settings(max_examples=40, deadline=None)
@given(problem=problems(rank=2), data=st.data())
def test_any_layout_and_reversal(problem: CanonicalConvolution, data: st.DataObject) -> None:
    assume(roomy(problem))
    lhs, rhs = exact_operands(problem)
    kinds = [data.draw(st.permutations(range(4))) for _ in range(3)]
    layouts = [(order[0], order[1], tuple(order[2:])) for order in kinds]
    (ib, if_, isp), (ki, ko, ksp), (ob, of, osp) = layouts
    layout = ConvLayout(ib, if_, isp, ki, ko, ksp, ob, of, osp)
    reversal = tuple(data.draw(st.booleans()) for _ in range(2))
    flipped = tuple(axis for axis, flag in enumerate(reversal) if flag)
    expected = by_definition(lhs, np.flip(rhs, flipped), problem)
    convolve = functools.partial(
        convolution,
        window_strides=problem.strides,
        padding=problem.padding,
        lhs_dilation=problem.input_dilation,
        rhs_dilation=problem.window_dilation,
        window_reversal=reversal,
        dimension_numbers=layout,
        feature_group_count=problem.feature_groups,
        batch_group_count=problem.batch_groups,
    )
    operands_there = lhs.transpose(np.argsort(layout.input)), rhs.transpose(np.argsort(layout.kernel))
    result = jit(convolve)(*operands_there)
    np.testing.assert_array_equal(np.asarray(result).transpose(layout.output), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "int32", "complex64"])
def test_other_element_types(dtype: str) -> None:
    problem = CanonicalConvolution(2, 3, 4, (5, 5), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1))
    lhs, rhs = (jnp.asarray(np.round(array * 2), dtype) for array in operands(problem))
    result = convolution(
        lhs,
        rhs,
        window_strides=(1, 1),
        padding=problem.padding,
        lhs_dilation=(1, 1),
        rhs_dilation=(1, 1),
        window_reversal=(False, False),
        dimension_numbers=ConvLayout.canonical(2),
    )
    assert result.dtype == dtype
    wide = jnp.complex64 if dtype == "complex64" else jnp.float32
    expected = jnp.asarray(by_definition(lhs.astype(wide), rhs.astype(wide), problem), wide)
    np.testing.assert_array_equal(np.asarray(result.astype(wide)), np.asarray(expected.astype(dtype).astype(wide)))


def test_operands_of_two_types() -> None:
    with pytest.raises(ValueError, match="must have one element type; received float32 and float16"):
        convolution(
            jnp.ones((1, 4, 1)),
            jnp.ones((2, 1, 1), jnp.float16),
            window_strides=(1,),
            padding=((0, 0),),
            lhs_dilation=(1,),
            rhs_dilation=(1,),
            window_reversal=(False,),
            dimension_numbers=ConvLayout.canonical(1),
        )


def test_the_explanation_names_the_plan_that_is_taken() -> None:
    problem = CanonicalConvolution(64, 32, 32, (32, 32), (3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1))
    assert choose(problem, callable_now()).name in explain(problem).splitlines()[0]
    with portable.without_native_code():
        assert choose(problem).name in explain(problem).splitlines()[0]


@pytest.mark.parametrize("batch", [1, 128])
@pytest.mark.parametrize("size", [28, 112])
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_a_plan_is_found_for_large_layers(batch: int, size: int, window: int, stride: int) -> None:
    """Plans that change a problem into another never go round in a circle."""
    for padding in ((0, 0), (1, 1), (0, 1), (2, 2)):
        problem = CanonicalConvolution(
            batch, 256, 64, (size, size), (window,) * 2, (stride,) * 2, (padding,) * 2, (1, 1), (1, 1)
        )
        assert choose(problem).applies(problem)
        summed = problem.but(leading_contraction=True)
        assert choose(summed).applies(summed)
