"""Half precision: float16 results against an independent numpy model, on the device and in the pure functions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import ipu_tf as ipu
from ipu_tf._config.configured_numerics import configured_numerics
from ipu_tf._loops.step_loop import StepLoop
from ipu_tf._loops.tensor_feed import TensorFeed
from ipu_tf._loops.tensorflow_step import TensorFlowStep
from ipu_tf.device.numerics import half
from ipu_tf.lowering.importer.half_precision import with_numerics
from ipu_tf.lowering.importer.numerics import Numerics, Rounding
from tests.helpers.device_counts import device_work
from tests.helpers.lowering_parity import lowered, traced_module

LARGEST = 65504.0
ALL = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
NUMBERS = st_numpy.arrays(np.float16, 64, elements=st.floats(width=16))
Behaviour = ipu.config.StochasticRoundingBehaviour


@contextlib.contextmanager
def configured(ipus: int = 1, stable: bool = False, **behaviour: Any) -> Iterator[ipu.ipu_strategy.IPUStrategyV1]:
    """A strategy for a device with some floating-point behaviour; the configuration is dropped afterwards."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.experimental.enable_prng_stability = stable
    for name, value in behaviour.items():
        setattr(config.floating_point_behaviour, name, value)
    config.configure_ipu_system()
    try:
        yield ipu.ipu_strategy.IPUStrategy()
    finally:
        ipu.config.reset_ipu_configuration()


def on_device(function: Callable[..., Any], *args: Any, **behaviour: Any) -> Any:
    """Returns the results of a function on a device with some floating-point behaviour, as NumPy arrays."""
    with configured(**behaviour) as strategy, device_work() as work:
        results = strategy.run(tf.function(function, autograph=False), [tf.constant(arg) for arg in args])
    assert work.counts.executions == 1
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), results)


def model(exact: np.ndarray, nan_on_overflow: bool) -> np.ndarray:
    """Exact results, in float64, as an IPU gives them in float16."""
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float16)
    too_large = np.isinf(rounded)
    return np.where(too_large, np.nan if nan_on_overflow else np.copysign(LARGEST, exact), rounded).astype(np.float16)


BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "add": (lambda a, b: a + b, np.add),
    "subtract": (lambda a, b: a - b, np.subtract),
    "multiply": (lambda a, b: a * b, np.multiply),
    "divide": (lambda a, b: a / b, np.divide),
}


@pytest.mark.parametrize("nanoo", [False, True])
def test_arithmetic_is_rounded_once_and_saturates_or_gives_nan(nanoo: bool) -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.integers(0, 1 << 16, 20000).astype(np.uint16).view(np.float16) for _ in range(2))
    a[:4], b[:4] = [1e4, 1e4, -1e4, 0], [1e4, 0, 0, 0]
    found = on_device(lambda a, b: [of_tensors(a, b) for of_tensors, _ in BINARY.values()], a, b, nanoo=nanoo)
    for name, got in zip(BINARY, found, strict=True):
        with np.errstate(all="ignore"):
            exact = BINARY[name][1](a.astype(np.float64), b.astype(np.float64))
        wanted = model(exact, nanoo)
        if name == "divide":
            wanted[b == 0] = np.nan
        np.testing.assert_array_equal(got, wanted, err_msg=name)
    assert np.isnan(found[-1][1:4]).all()
    assert np.isnan(found[2][0]) if nanoo else found[2][0] == LARGEST


@settings(deadline=None, max_examples=200)
@given(NUMBERS, st.booleans())
def test_float16_numbers_stay_what_they_are(numbers: np.ndarray, nan_on_overflow: bool) -> None:
    got = np.asarray(half.narrowed(jnp.asarray(numbers, jnp.float32), nan_on_overflow))
    np.testing.assert_array_equal(got, model(numbers.astype(np.float64), nan_on_overflow))
    finite = np.isfinite(numbers)
    np.testing.assert_array_equal(got[finite].view(np.uint16), numbers[finite].view(np.uint16))


@settings(deadline=None, max_examples=200)
@given(st_numpy.arrays(np.float32, 16, elements=st.floats(width=32)), st.booleans())
def test_narrowing_is_numpys_conversion_within_the_range(numbers: np.ndarray, nan_on_overflow: bool) -> None:
    got = np.asarray(half.narrowed(jnp.asarray(numbers), nan_on_overflow))
    np.testing.assert_array_equal(got, model(numbers.astype(np.float64), nan_on_overflow))


def test_every_other_kind_of_op_saturates() -> None:
    ones = np.full((16, 16), 300, np.float16)

    def program(x: tf.Tensor) -> dict[str, tf.Tensor]:
        images = tf.reshape(x, [1, 16, 16, 1])
        return {
            "matmul": tf.matmul(x, x),
            "convolution": tf.nn.conv2d(images, tf.reshape(x, [16, 16, 1, 1]), 1, "SAME"),
            "sum": tf.reduce_sum(x),
            "product": tf.reduce_prod(x),
            "exponential": tf.exp(x),
            "square": tf.square(x),
            "power": x**3,
            "sinh": tf.sinh(x),
            "convert": tf.cast(tf.cast(x, tf.float32) * 1e6, tf.float16),
            "convert an integer": tf.cast(tf.cast(x, tf.int32) * 1000, tf.float16),
            "scatter": tf.tensor_scatter_nd_add(x[0], tf.zeros([250, 1], tf.int32), tf.tile(x[0, :1], [250]))[0],
            "scatter less": tf.tensor_scatter_nd_sub(-x[0], tf.zeros([250, 1], tf.int32), tf.tile(x[0, :1], [250]))[0],
            "pooled": tf.nn.avg_pool2d(images * 200, 4, 1, "VALID"),
            "loop": tf.while_loop(lambda i, y: i < 8, lambda i, y: (i + 1, y * y), [tf.constant(0), x])[1],
            "branch": tf.cond(x[0, 0] > 0, lambda: x * x, lambda: x),
            "mean": tf.reduce_mean(x * 200),
        }

    for nanoo in (False, True):
        found = on_device(program, ones, nanoo=nanoo)
        assert found.pop("pooled").max() == found.pop("mean") == np.float16(60000)  # sums do not overflow on the way
        for name, values in found.items():
            overflowed = values[..., 8, 8, :] if name == "convolution" else values
            largest = -LARGEST if name == "scatter less" else LARGEST
            assert np.isnan(overflowed).all() if nanoo else (overflowed == largest).all(), name


def test_sums_and_products_are_computed_in_float32() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=(64, 512)).astype(np.float16) for _ in range(2))
    wide = on_device(lambda a, b: (tf.matmul(a, b, transpose_b=True), tf.reduce_sum(a * 0 + b, 1)), a, b)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(wide[0], exact, rtol=2**-10, atol=2**-10)
    np.testing.assert_allclose(wide[1], b.astype(np.float64).sum(1), rtol=2**-10, atol=2**-10)


@pytest.mark.parametrize("name", ["cholesky", "qr", "eigh", "triangular_solve"])
def test_linear_algebra_is_computed_in_float32_and_rounded_once(name: str) -> None:
    function = getattr(tf.linalg, name)
    matrix = np.array([[400.0, 10.0, 3.0], [10.0, 300.0, 5.0], [3.0, 5.0, 0.1]], np.float16)
    args = (matrix, matrix) if name == "triangular_solve" else (matrix,)
    found = on_device(lambda *args: tf.nest.flatten(function(*args)), *args)
    wide = on_device(lambda *args: tf.nest.flatten(function(*args)), *(arg.astype(np.float32) for arg in args))
    for got, exact in zip(found, wide, strict=True):
        # Some factorizations are several ops, each of which rounds.
        np.testing.assert_allclose(got, model(exact, nan_on_overflow=False), rtol=2**-8, atol=2**-8)


def test_float16_solutions_saturate() -> None:
    tiny = np.array([[1e-5, 0], [0, -1e-5]], np.float16)
    for nanoo in (False, True):
        found = on_device(lambda x: tf.linalg.triangular_solve(x, tf.ones([2, 1], tf.float16)), tiny, nanoo=nanoo)
        exact = np.linalg.solve(tiny.astype(np.float64), np.ones([2, 1]))
        np.testing.assert_array_equal(found, model(exact, nan_on_overflow=nanoo))


def test_float16_becomes_integers_as_on_an_ipu() -> None:
    numbers = np.array([np.nan, 1.9, -1.9, LARGEST], np.float16)
    whole, small = on_device(lambda x: (tf.cast(x, tf.int32), tf.cast(tf.cast(x[1:], tf.float32), tf.uint8)), numbers)
    np.testing.assert_array_equal(whole, [-(2**31), 1, -1, 65504])
    np.testing.assert_array_equal(small, [1, 255, 224])  # the lowest bits of the whole number, as in TensorFlow


def test_what_moves_or_chooses_leaves_infinities_alone() -> None:
    numbers = np.array([np.inf, -np.inf, 1.0, np.nan], np.float16)

    def program(x: tf.Tensor) -> list[tf.Tensor]:
        moved = [tf.reverse(x, [0]), -tf.abs(x), tf.sort(x[:3]), tf.maximum(x[:3], 2)]
        return [*moved, tf.gather(x, [1, 0]), tf.where(x > 0, x, 0), tf.cast(x, tf.float32)]

    found = on_device(program, numbers)
    for got, wanted in zip(found, program(tf.constant(numbers)), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_programs_settings_are_those_configured_when_it_runs() -> None:
    square = tf.function(lambda x: x * x, jit_compile=True)
    found = []
    for nanoo in (False, True, False):
        with configured(nanoo=nanoo) as strategy:
            found.append(float(strategy.run(square, [tf.constant(1e4, tf.float16)])))
    assert (found[0], np.isnan(found[1]), found[2]) == (LARGEST, True, LARGEST)


@pytest.mark.parametrize("numerics", [Numerics(), Numerics(rounding=Rounding.STOCHASTIC, nan_on_overflow=True)])
def test_programs_without_float16_are_left_alone(numerics: Numerics) -> None:
    x = np.ones((4, 4), np.float32)
    module = lowered(lambda x: tf.nn.softmax(x @ x) + tf.cast(tf.cast(x, tf.bfloat16), tf.float32), tf.constant(x))
    assert with_numerics(module, numerics) is module
    halved = lowered(lambda x: tf.cast(x, tf.float16), tf.constant(x))
    assert with_numerics(halved, numerics) is not halved
    assert "clamp" not in str(traced_module(halved, x))
    assert ("clamp" in str(traced_module(with_numerics(halved, Numerics()), x))) is True


def test_the_configuration_is_taken_over() -> None:
    assert configured_numerics() == Numerics()
    with configured(oflo=True, nanoo=True, esr=Behaviour.REPLICA_IDENTICAL_ONLY, stable=True):
        assert configured_numerics() == Numerics(True, Rounding.REPLICA_IDENTICAL, True, frozenset({"oflo"}))
    with configured(set_all=True):
        everything = frozenset({"inv", "div0", "oflo"})
        assert configured_numerics() == Numerics(True, Rounding.STOCHASTIC, False, everything)
    assert configured_numerics() == Numerics()


def test_every_float16_survives_narrowing_in_a_loop() -> None:
    finite = ALL[np.isfinite(ALL)]
    same = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, y: half.narrowed(y.astype(jnp.float32)), x))(finite)
    np.testing.assert_array_equal(np.asarray(same).view(np.uint16), finite.view(np.uint16))


def test_a_step_made_for_other_settings_is_refused() -> None:
    with configured():
        loop = StepLoop(TensorFlowStep(lambda x: x * x, tf.TensorSpec([1], tf.float16)))
        outputs = loop.run((), TensorFeed(iter([np.full(1, 1e4, np.float16)])), 1).outputs
        assert outputs.numpy() == [LARGEST]
    with configured(nanoo=True), pytest.raises(tf.errors.FailedPreconditionError, match="Make the loop again"):
        loop.run((), TensorFeed(iter([np.full(1, 1e4, np.float16)])), 1)
