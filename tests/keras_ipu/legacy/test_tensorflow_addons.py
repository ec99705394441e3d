"""LAMB, the metric and the layer of TensorFlow Addons compute their formulas, on the device too."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_ipu.legacy import tensorflow_addons as tfa
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy as strategy

_RNG = np.random.default_rng(0)
_LABELS = np.eye(3, dtype="float32")[_RNG.integers(0, 3, 40)]
_PREDICTIONS = _RNG.uniform(0.05, 1.0, (40, 3)).astype("float32")
_X = (3 * _RNG.normal(size=(16, 5)) + 1).astype("float32")


def f1_scores(chosen: Any, average: str | None) -> Any:
    """The harmonic mean of precision and recall, which is `2 TP / (2 TP + FP + FN)`."""
    axis = None if average == "micro" else 0
    true = (chosen * _LABELS).sum(axis)
    scores = 2 * true / (chosen.sum(axis) + _LABELS.sum(axis))
    if average == "macro":
        return scores.mean()
    return (scores * _LABELS.mean(0)).sum() if average == "weighted" else scores


@pytest.mark.parametrize("package", ["keras_ipu.legacy", "keras_ipu.keras_2"])
@pytest.mark.parametrize("threshold", [None, 0.5])
@pytest.mark.parametrize("average", [None, "micro", "macro", "weighted"])
def test_f1_score_is_the_harmonic_mean_of_precision_and_recall(
    package: str, average: str | None, threshold: float | None
) -> None:
    metrics = pytest.importorskip(f"{package}.tensorflow_addons", reason="tf_keras is not installed").metrics
    metric = metrics.F1Score(3, average, threshold)
    metric = metrics.F1Score.from_config(metric.get_config())
    assert (metric.num_classes, metric.name) == (3, "f1_score")
    for part in (slice(0, 15), slice(15, 40)):
        metric.update_state(_LABELS[part], _PREDICTIONS[part])
    largest = np.eye(3)[_PREDICTIONS.argmax(1)]
    chosen = largest if threshold is None else (threshold < _PREDICTIONS).astype("float32")
    np.testing.assert_allclose(metric.result(), f1_scores(chosen, average), rtol=1e-5)


def test_f1_score_of_a_model_on_the_device(strategy: Any) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Activation("linear")])
        model.compile("sgd", "mse", metrics=[tfa.metrics.F1Score(num_classes=3, average="macro")])
        with device_work() as measured:
            found = model.evaluate(_PREDICTIONS, _LABELS, batch_size=8, verbose=0)[1]
    assert measured.counts.steps == 5
    np.testing.assert_allclose(found, f1_scores(np.eye(3)[_PREDICTIONS.argmax(1)], "macro"), rtol=1e-5)


_EXCLUDING: list[tuple[dict[str, Any], bool, bool]] = [
    ({}, True, True),
    ({"exclude_from_weight_decay": ["bias", "we.*t"]}, False, False),
    ({"exclude_from_weight_decay": ["weight"], "exclude_from_layer_adaptation": ["bias"]}, False, True),
    ({"exclude_from_layer_adaptation": ["weight"]}, True, False),
]


@pytest.mark.parametrize("package", ["keras_ipu.legacy", "keras_ipu.keras_2"])
@pytest.mark.parametrize("decay", ["weight_decay", "weight_decay_rate"])
@pytest.mark.parametrize(("patterns", "decays", "is_rescaled"), _EXCLUDING)
def test_lamb_does_not_rescale_what_does_not_decay_unless_told_so(
    package: str, decay: str, patterns: dict[str, Any], decays: bool, is_rescaled: bool
) -> None:
    lamb = pytest.importorskip(f"{package}.tensorflow_addons", reason="tf_keras is not installed").optimizers.LAMB
    optimizer = lamb(0.1, 0.8, 0.9, **{decay: 0.3}, **patterns)
    config = optimizer.get_config()
    assert config["weight_decay"] == 0.3 and "weight_decay_rate" not in config
    optimizer, weight = lamb.from_config(config), tf.Variable([3.0, -1.0, 0.5], name="weight")
    wanted, mean, square = weight.numpy().astype("float64"), np.zeros(3), np.zeros(3)
    for step, gradient in enumerate(np.array([[1.0, -2.0, 0.25], [0.5, 0.0, -4.0]]), 1):
        optimizer.apply_gradients([(tf.constant(gradient, "float32"), weight)])
        mean, square = 0.8 * mean + 0.2 * gradient, 0.9 * square + 0.1 * gradient**2
        change = mean / (1 - 0.8**step) / (np.sqrt(square / (1 - 0.9**step)) + 1e-6) + 0.3 * decays * wanted
        wanted -= 0.1 * change * (np.linalg.norm(wanted) / np.linalg.norm(change) if is_rescaled else 1.0)
    np.testing.assert_allclose(weight, wanted, rtol=1e-5)


def normalised(kernel: Any) -> Any:
    """A kernel, divided by the length of each output's weights."""
    return kernel / np.sqrt((kernel**2).sum(tuple(range(kernel.ndim - 1))))


@pytest.mark.parametrize("activation", ["linear", "relu"])
def test_weight_normalization_begins_with_what_the_layer_computed(activation: str) -> None:
    layer = keras.layers.Dense(3, activation=activation)
    wrapped = tfa.layers.WeightNormalization(layer, data_init=False)
    found = wrapped(_X)
    np.testing.assert_allclose(found, layer(_X), rtol=1e-5, atol=1e-6)
    wrapped.g.assign([1.0, 2.0, -1.0])
    wanted = _X @ (normalised(layer.kernel.numpy()) * np.array([1.0, 2.0, -1.0]))
    wanted = np.maximum(wanted, 0) if activation == "relu" else wanted
    np.testing.assert_allclose(wrapped(_X), wanted, rtol=1e-5, atol=1e-5)


def test_weight_normalization_begins_with_the_moments_of_what_the_layer_computed() -> None:
    layer = keras.layers.Conv2D(4, 3, activation="relu", bias_initializer=keras.initializers.Constant(0.5))
    wrapped = tfa.layers.WeightNormalization(layer)
    images = (2 * _RNG.normal(size=(4, 6, 6, 2)) + 1).astype("float32")
    first, kernel = wrapped(images), layer.kernel.numpy()
    computed = tf.nn.conv2d(images, kernel, 1, "VALID").numpy() + 0.5
    mean, deviation = computed.mean((0, 1, 2)), computed.std((0, 1, 2))
    np.testing.assert_allclose(wrapped.g, 1 / deviation, rtol=1e-5)
    np.testing.assert_allclose(layer.bias, -mean / deviation, rtol=1e-4, atol=1e-6)
    wanted = (tf.nn.conv2d(images, normalised(kernel), 1, "VALID").numpy() - mean) / deviation
    np.testing.assert_allclose(first, np.maximum(wanted, 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(wrapped(images[:1]), first[:1], rtol=1e-5, atol=1e-6)  # data sets them once


@pytest.mark.parametrize("data_init", [True, False])
def test_weight_normalization_of_a_kernel_of_zeros_computes_its_bias(data_init: bool) -> None:
    layer = keras.layers.Dense(3, kernel_initializer="zeros", bias_initializer="ones")
    found = tfa.layers.WeightNormalization(layer, data_init)(_X)
    np.testing.assert_array_equal(found, np.broadcast_to(layer.bias, (16, 3)))
    assert np.isfinite(layer.bias).all()


def test_weight_normalization_trains_as_its_formula_on_the_device(strategy: Any) -> None:
    kernel, scale, wanted = _RNG.normal(size=(5, 3)).astype("float32"), tf.Variable(tf.ones(3)), _LABELS[:16]
    v = tf.Variable(kernel)
    scale.assign(tf.norm(v, axis=0))
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((_X @ (v / tf.norm(v, axis=0) * scale) - wanted) ** 2)
        for variable, gradient in zip((v, scale), tape.gradient(loss, (v, scale)), strict=True):
            variable.assign_sub(0.01 * gradient)
    with strategy.scope():
        layer = keras.layers.Dense(3, use_bias=False, kernel_initializer=keras.initializers.Constant(kernel))
        model = keras.Sequential([keras.Input((5,)), tfa.layers.WeightNormalization(layer, data_init=False)])
        model.compile(keras.optimizers.SGD(0.01), "mse")
        with device_work() as measured:
            model.fit(_X, wanted, batch_size=16, epochs=3, verbose=0)
    assert measured.counts.steps == 3
    np.testing.assert_allclose(layer.kernel, v, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.layers[0].g, scale, rtol=1e-4)


def test_weight_normalization_is_kept_in_a_configuration_and_wants_a_kernel() -> None:
    layer = tfa.layers.WeightNormalization(keras.layers.Dense(3, name="inner"), data_init=False, name="outer")
    again = tfa.layers.WeightNormalization.from_config(layer.get_config())
    assert (again.name, again.layer.name, again.layer.units, again.data_init) == ("outer", "inner", 3, False)
    assert again.compute_output_shape((2, 5)) == (2, 3)
    with pytest.raises(ValueError, match="must wrap a layer with a kernel. Received: <ReLU"):
        tfa.layers.WeightNormalization(keras.layers.ReLU())(_X)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_models_with_classes_of_addons_are_loaded(tmp_path: Path) -> None:
    decay = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
    for optimizer in (tfa.optimizers.AdamW(1e-4), tfa.optimizers.SGDW(decay, learning_rate=0.1)):
        model = keras.Sequential([keras.Input((3,)), tfa.layers.WeightNormalization(keras.layers.Dense(2, "sigmoid"))])
        model.compile(optimizer, "mse", metrics=[tfa.metrics.F1Score(2)])
        x, y = np.ones((4, 3), np.float32), np.eye(2, dtype=np.float32)[[0, 1, 1, 0]]
        model.fit(x, y, verbose=0)
        model.save(tmp_path / "model.keras")
        again = keras.models.load_model(tmp_path / "model.keras")
        mine, theirs = [each.fit(x, y, epochs=2, verbose=0).history["loss"] for each in (model, again)]
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
        for mine, theirs in zip(model.get_weights(), again.get_weights(), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_a_decay_may_be_a_function_and_arguments_are_in_the_order_of_addons() -> None:
    weight = keras.Variable([2.0])
    tfa.optimizers.SGDW(lambda: 0.5, 0.1, 0.0, True, "mine").apply([tf.constant([0.0])], [weight])
    assert float(weight[0]) == 1.0
    adam = tfa.optimizers.AdamW(1e-4, 1e-3, 0.8, 0.9, 1e-5, True, "own").get_config()
    assert [adam[name] for name in ("beta_1", "beta_2", "epsilon", "amsgrad", "name")] == [0.8, 0.9, 1e-5, True, "own"]


@pytest.mark.parametrize("data_init", [False, True])
@pytest.mark.parametrize("on_device", [False, True])
def test_weight_normalization_keeps_the_losses_of_the_layer(data_init: bool, on_device: bool, strategy: Any) -> None:
    x, y = np.ones((4, 3), np.float32), np.zeros((4, 2), np.float32)
    with strategy.scope() if on_device else contextlib.nullcontext(), device_work() as work:
        dense = keras.layers.Dense(2, kernel_initializer="ones", activity_regularizer=keras.regularizers.L2(1.0))
        model = keras.Sequential([keras.Input((3,)), tfa.layers.WeightNormalization(dense, data_init)])
        model.compile(keras.optimizers.SGD(0.0), "mse")
        [loss] = model.fit(x, y, batch_size=4, verbose=0).history["loss"]
        outputs = model.predict(x, batch_size=4, verbose=0)
    assert (work.counts.executions > 0) == on_device
    assert loss == pytest.approx((outputs**2).mean() + (outputs**2).sum() / 4, rel=1e-5)


_DECAYING: dict[str, Any] = {
    "SGDW": lambda tfa, patterns: tfa.optimizers.SGDW(0.5, 0.0, exclude_from_weight_decay=patterns),
    "AdamW": lambda tfa, patterns: tfa.optimizers.AdamW(0.5, 0.0, exclude_from_weight_decay=patterns),
    "extended": lambda tfa, patterns: tfa.optimizers.extend_with_decoupled_weight_decay(keras.optimizers.RMSprop)(
        0.5, learning_rate=0.0, exclude_from_weight_decay=patterns
    ),
}


@pytest.mark.parametrize("name", _DECAYING)
@pytest.mark.parametrize("on_device", [False, True])
def test_variables_whose_paths_match_a_pattern_do_not_decay(name: str, on_device: bool, strategy: Any) -> None:
    with strategy.scope() if on_device else contextlib.nullcontext(), device_work() as work:
        dense = keras.layers.Dense(2, kernel_initializer="ones", bias_initializer="ones", name="outer")
        model = keras.Sequential([keras.Input((3,)), dense])
        model.compile(_DECAYING[name](tfa, ["outer/b.*s"]), "mse")
        model.fit(np.ones((4, 3), np.float32), np.zeros((4, 2), np.float32), batch_size=4, verbose=0)
    assert (work.counts.executions > 0) == on_device
    np.testing.assert_array_equal(dense.kernel, np.full((3, 2), 0.5))
    np.testing.assert_array_equal(dense.bias, np.ones(2))
    own, optimizer = tf.Variable([4.0], name="bias"), _DECAYING[name](tfa, ["b.*s"])
    optimizer.apply_gradients([(tf.constant([0.0]), own)])
    np.testing.assert_array_equal(own, [4.0])


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("on_device", [False, True])
def test_weight_normalization_keeps_weights_that_mixed_precision_would_round(
    policy: str, on_device: bool, strategy: Any
) -> None:
    x = np.ones((4, 3), np.float32)
    with strategy.scope() if on_device else contextlib.nullcontext(), device_work() as work:
        inner = keras.layers.Dense(2, dtype=policy, bias_initializer=keras.initializers.Constant(1.0001))
        wrapped = tfa.layers.WeightNormalization(inner, dtype=policy)
        model = keras.Sequential([keras.Input((3,)), wrapped])
        model.predict(x + _RNG.normal(size=(4, 3)), batch_size=4, verbose=0)  # sets them by its data
        wrapped.g.assign([1.0001, 2.0003])
        inner.bias.assign([1.0001, -3.0001])
        found = model.predict(x, batch_size=4, verbose=0)
    assert (work.counts.executions > 0) == on_device
    np.testing.assert_allclose(wrapped.g, [1.0001, 2.0003], rtol=1e-6)
    np.testing.assert_allclose(inner.bias, [1.0001, -3.0001], rtol=1e-6)
    wanted = x @ (normalised(inner.kernel.numpy()) * wrapped.g.numpy()) + inner.bias.numpy()
    np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("policy", ["mixed_float16", "float16"])
def test_weight_normalization_of_a_kernel_of_zeros_in_half_precision(policy: str) -> None:
    layer = keras.layers.Dense(3, kernel_initializer="zeros", bias_initializer="ones", dtype=policy)
    found = tfa.layers.WeightNormalization(layer, data_init=False, dtype=policy)(_X)
    np.testing.assert_array_equal(found, np.ones((16, 3)))
