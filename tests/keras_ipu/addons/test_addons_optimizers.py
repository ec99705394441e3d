"""The optimizers of the addons against Keras's and against numpy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from keras_ipu.addons.optimizers import AdamIpuOptimizer, IpuOptimizerBase, LAMBIpuOptimizer, SGDIpuOptimizer
from tests.helpers.keras_parity import Program, numbers
from tests.helpers.one_ipu import strategy as strategy

STEPS = 5
GRADIENTS = numbers(STEPS, 3, seed=7)
FIRST = np.asarray([1.0, -2.0, 0.5], np.float32)


def trained(optimizer: Any, dtype: str = "float32") -> np.ndarray:
    """A variable after some updates."""
    variable = keras.Variable(FIRST, dtype=dtype, name="weight")
    for gradient in GRADIENTS:
        optimizer.apply([tf.constant(gradient, dtype)], [variable])
    result: np.ndarray = variable.numpy()
    return result


@pytest.mark.parametrize(
    ("ours", "stock"),
    [
        (SGDIpuOptimizer(0.1), keras.optimizers.SGD(0.1)),
        (SGDIpuOptimizer(0.1, 0.9), keras.optimizers.SGD(0.1, 0.9)),
        (SGDIpuOptimizer(0.1, 0.9, True), keras.optimizers.SGD(0.1, 0.9, True)),
        (SGDIpuOptimizer(lr=0.1, clipnorm=0.5), keras.optimizers.SGD(0.1, clipnorm=0.5)),
        (AdamIpuOptimizer(0.1, 0.8, 0.9, 1e-9), keras.optimizers.Adam(0.1, 0.8, 0.9, 1e-9)),
        (AdamIpuOptimizer(weight_decay=0.1), keras.optimizers.AdamW(0.001, 0.1)),
        (
            SGDIpuOptimizer(0.1, decay=0.5),
            keras.optimizers.SGD(keras.optimizers.schedules.InverseTimeDecay(0.1, 1, 0.5)),
        ),
    ],
)
def test_an_optimizer_is_its_namesake(ours: Any, stock: Any) -> None:
    np.testing.assert_allclose(trained(ours), trained(stock), rtol=1e-5)


def moments(beta_1: float, beta_2: float, debiasing: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """The two moments after each gradient."""
    mean, square, found = np.zeros(3), np.zeros(3), []
    for step, gradient in enumerate(GRADIENTS.astype(np.float64), 1):
        mean = beta_1 * mean + (1 - beta_1) * gradient
        square = beta_2 * square + (1 - beta_2) * gradient**2
        correct = (1 - beta_1**step, 1 - beta_2**step) if debiasing else (1, 1)
        found.append((mean / correct[0], square / correct[1]))
    return found


@pytest.mark.parametrize("debiasing", [True, False])
@pytest.mark.parametrize("amsgrad", [True, False])
def test_adam(debiasing: bool, amsgrad: bool) -> None:
    wanted, largest = FIRST.astype(np.float64), np.zeros(3)
    for mean, square in moments(0.8, 0.9, debiasing):
        largest = np.maximum(largest, square) if amsgrad else square
        wanted = wanted - 0.1 * mean / (np.sqrt(largest) + 0.25)
    optimizer = AdamIpuOptimizer(0.1, 0.8, 0.9, 0.25, amsgrad, debiasing=debiasing)
    np.testing.assert_allclose(trained(optimizer), wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "decay", "adapt", "clip"),
    [
        ({}, True, True, np.inf),
        ({"weight_norm_clip": 1.5}, True, True, 1.5),
        ({"exclude_from_weight_decay": ["we.*t"]}, False, True, np.inf),
        ({"exclude_from_layer_adaptation": ["bias", "weight"]}, True, False, np.inf),
        ({"exclude_from_layer_adaptation": ["bias"], "debiasing": False}, True, True, np.inf),
    ],
)
def test_lamb(options: dict[str, Any], decay: bool, adapt: bool, clip: float) -> None:
    wanted = FIRST.astype(np.float64)
    for mean, square in moments(0.8, 0.9, options.get("debiasing", True)):
        change = mean / (np.sqrt(square) + 1e-6) + (0.3 * wanted if decay else 0)
        ratio = np.minimum(np.linalg.norm(wanted), clip) / np.linalg.norm(change) if adapt else 1
        wanted = wanted - 0.1 * ratio * change
    found = trained(LAMBIpuOptimizer(0.1, 0.8, 0.9, weight_decay_rate=0.3, **options))
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_lamb_does_not_divide_by_zero() -> None:
    variable = keras.Variable(np.zeros(2, np.float32))
    LAMBIpuOptimizer(0.1).apply([tf.zeros([2])], [variable])
    np.testing.assert_array_equal(variable.numpy(), [0, 0])
    LAMBIpuOptimizer(0.1, epsilon=1e-9).apply([tf.ones([2])], [variable])
    np.testing.assert_allclose(variable.numpy(), [-0.1, -0.1], rtol=1e-4)


@pytest.mark.parametrize(
    ("optimizer", "wanted"),
    [
        (AdamIpuOptimizer(), {"m": "float16", "v": "float16"}),
        (AdamIpuOptimizer(v_dtype=tf.float32, amsgrad=True), {"m": "float16", "v": "float32", "vhat": "float16"}),
        (AdamIpuOptimizer(m_dtype="float32", vhat_dtype=tf.float32, amsgrad=True), {"m": "float32", "vhat": "float32"}),
        (SGDIpuOptimizer(momentum=0.5, momentum_accum_dtype=tf.float32), {"momentum": "float32"}),
        (LAMBIpuOptimizer(m_dtype=tf.float32), {"m": "float32", "v": "float16"}),
    ],
)
def test_slots_have_the_dtypes_asked_for(optimizer: Any, wanted: dict[str, str]) -> None:
    variable = keras.Variable(FIRST, dtype="float16")
    optimizer.apply([tf.constant(GRADIENTS[0], tf.float16)], [variable])
    assert {slot: optimizer.get_slot(variable, slot).dtype for slot in wanted} == wanted
    with pytest.raises(KeyError):
        optimizer.get_slot(variable, "other")
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(again) is type(optimizer)
    assert again.get_config() == optimizer.get_config()


def test_state_in_float32_keeps_what_float16_loses() -> None:
    results = [
        trained(AdamIpuOptimizer(0.1, v_dtype=dtype, epsilon=1e-7), dtype="float16") for dtype in (None, "float32")
    ]
    exact = trained(AdamIpuOptimizer(0.1))
    assert np.abs(results[1] - exact).max() < np.abs(results[0] - exact).max() + 1e-6
    np.testing.assert_allclose(results[1], exact, rtol=5e-3)


def test_arithmetic_is_done_in_the_precision_asked_for() -> None:
    exact = trained(AdamIpuOptimizer(0.1))
    half = trained(AdamIpuOptimizer(0.1, epsilon=1e-3, optimizer_compute_precisions=[tf.float16]))
    assert 1e-5 < np.abs(half - exact).max() < 5e-2
    with pytest.raises(ValueError, match="Must provide a list of two elements for the optimizer compute precision"):
        LAMBIpuOptimizer(optimizer_compute_precisions=[tf.float32])
    with pytest.raises(TypeError, match="has no argument `weight_decay`: its decay is `weight_decay_rate`"):
        LAMBIpuOptimizer(weight_decay=0.1)


def test_outlining_is_recorded() -> None:
    assert float(AdamIpuOptimizer(beta_1=0.5)._get_hyper("beta_1", "float16")) == 0.5
    assert IpuOptimizerBase("base", outline_apply_gradients=True).get_slot_names() == []
    assert "IpuOptimizerBase.outline_apply_gradients" in {one.name for one in ipu.emulation.ignored_arguments()}


def embedded_model() -> keras.Model:
    """A table, whose gradient has rows only, under a dense layer."""
    layers = keras.layers
    table = layers.Embedding(7, 4)
    return keras.Sequential([keras.Input((3,), dtype="int32"), table, layers.Flatten(), layers.Dense(2)])


MAKERS: dict[str, Callable[[], Any]] = {
    "adam": lambda: AdamIpuOptimizer(0.01, m_dtype="float16"),
    "sgd": lambda: SGDIpuOptimizer(0.05, 0.9),
    "lamb": lambda: LAMBIpuOptimizer(0.01, weight_decay_rate=0.1),
}


@pytest.mark.parametrize("name", MAKERS)
def test_training_on_the_device_is_as_on_the_host(name: str) -> None:
    x = np.random.default_rng(0).integers(0, 7, (40, 3)).astype(np.int32)
    rtol = 5e-3 if name == "adam" else 1e-4
    Program(name, embedded_model, x, numbers(40, 2), optimizer=MAKERS[name], rtol=rtol).check()


@pytest.mark.parametrize("kind", [SGDIpuOptimizer, AdamIpuOptimizer, LAMBIpuOptimizer])
def test_a_rate_that_decays_can_be_set_and_may_be_a_schedule(kind: Any) -> None:
    schedules = keras.optimizers.schedules
    optimizer = kind(0.4, decay=0.5)
    again = kind.from_config(optimizer.get_config())
    optimizer.learning_rate = 0.1
    again.learning_rate.assign(0.1)
    wanted = trained(kind(schedules.InverseTimeDecay(0.1, 1, 0.5)))
    for each in (optimizer, again):
        assert each.get_config()["decay"] == 0.5
        np.testing.assert_allclose(trained(each), wanted, rtol=1e-5)
        assert float(each.learning_rate) == pytest.approx(0.1)
    falling = schedules.PiecewiseConstantDecay([2, 4], [0.4, 0.2, 0.1])

    class Both(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step: Any) -> Any:
            return falling(step) / (1 + 0.5 * keras.ops.cast(step, "float32"))

    np.testing.assert_allclose(trained(kind(falling, decay=0.5)), trained(kind(Both())), rtol=1e-5)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_callbacks_set_a_rate_that_decays(strategy: Any) -> None:
    def fitted(scope: Any) -> Any:
        with scope:
            dense = keras.layers.Dense(1, kernel_initializer="ones")
            model = keras.Sequential([keras.Input((3,)), dense])
            model.compile(SGDIpuOptimizer(0.5, decay=0.5), "mse")
        scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.1 * rate + 0.01)
        model.fit(GRADIENTS, GRADIENTS[:, :1], epochs=2, batch_size=5, verbose=0, callbacks=[scheduler])
        return dense.kernel.numpy()

    np.testing.assert_allclose(fitted(strategy.scope()), fitted(contextlib.nullcontext()), rtol=1e-5)
