"""Keras optimizers that wrap others: gradient accumulation, mapped gradients, means over replicas."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import ipu_tf as ipu
from ipu_tf.gradient_accumulation import GradientAccumulationReductionMethod as Method
from keras_ipu.optimizers import (
    CrossReplicaOptimizer,
    GradientAccumulationOptimizer,
    IpuOptimizer,
    MapGradientOptimizer,
    MapGradientOptimizerInvertedChaining,
)
from keras_ipu.optimizers.gradient_reduction import add_gradient
from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import Program, numbers
from tests.helpers.one_ipu import strategy as strategy

# Keras's savers read TensorFlow variables by a protocol of numpy 1.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

STEPS, BATCH = 10, 4
X, Y = numbers(STEPS * BATCH, 3), numbers(STEPS * BATCH, 2, seed=1)
INNER: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.05),
    "schedule": lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.2, 1, 0.5)),
    "clipped": lambda: keras.optimizers.SGD(0.3, clipnorm=0.1),
}


def small_model() -> keras.Model:
    """A layer whose weights are the same each time."""
    keras.utils.set_random_seed(3)
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, activation="tanh")])


def reduced(grads: list[list[np.ndarray]], method: Method) -> list[np.ndarray]:
    """Returns the gradient of an update from those of each micro-batch."""
    total = [np.sum(parts, axis=0) for parts in zip(*grads, strict=True)]
    return total if method is Method.SUM else [part / len(grads) for part in total]


def reference(inner: Callable[[], Any], count: int, method: Method) -> tuple[list[np.ndarray], int]:
    """The weights after `STEPS` micro-batches, and the number of updates, by a loop in Python with stock Keras."""
    model, optimizer = small_model(), inner()
    gathered: list[list[np.ndarray]] = []
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(X[part]) - Y[part]))
        gathered.append([grad.numpy() for grad in tape.gradient(loss, model.trainable_variables)])
        if len(gathered) == count:
            optimizer.apply(reduced(gathered, method), model.trainable_variables)
            gathered = []
    return model.get_weights(), int(optimizer.iterations.numpy())


def fitted(model: keras.Model, optimizer: Any) -> keras.Model:
    """The model after one epoch of `STEPS` micro-batches."""
    model.compile(optimizer, "mse", steps_per_execution=5)
    model.fit(X, Y, batch_size=BATCH, shuffle=False, verbose=0)
    return model


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("inner", INNER)
def test_an_update_is_made_of_several_micro_batches(strategy: Any, inner: str, method: Method) -> None:
    weights, updates = reference(INNER[inner], 4, method)
    host = fitted(small_model(), GradientAccumulationOptimizer(INNER[inner](), 4, reduction_method=method))
    with strategy.scope():
        model = small_model()
        optimizer = GradientAccumulationOptimizer(INNER[inner](), 4, reduction_method=method.name.lower())
    with device_work() as measured:
        fitted(model, optimizer)
    assert measured.counts.steps == STEPS
    assert updates == 2
    for trained in (host, model):
        assert int(trained.optimizer.iterations.numpy()) == updates
        for found, wanted in zip(trained.get_weights(), weights, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


@given(
    st.lists(st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3), min_size=1, max_size=6),
    st.sampled_from(list(Method)),
)
@settings(max_examples=30, deadline=None)
def test_reduction_of_any_gradients(grads: list[list[float]], method: Method) -> None:
    total = tf.zeros([3])
    for position, grad in enumerate(grads):
        total = add_gradient(total, tf.constant(grad), tf.constant(position), method, len(grads))
    wanted = reduced([[np.asarray(grad, np.float64)] for grad in grads], method)[0]
    np.testing.assert_allclose(total, wanted, rtol=1e-4, atol=1e-3)


def test_a_mean_in_float16_does_not_overflow() -> None:
    large, total = tf.constant([40000.0], tf.float16), tf.zeros([1], tf.float16)
    for position in range(4):
        total = add_gradient(total, large, tf.constant(position), Method.MEAN, 4)
    assert float(total[0]) == 40000.0


class Spy(keras.optimizers.SGD):
    """Notes the dtypes of the gradients that it gets."""

    def __init__(self) -> None:
        super().__init__(0.1)
        self.seen: list[str] = []

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        self.seen += [grad.dtype.name for grad in grads]
        super().apply(grads, trainable_variables)


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [
        (None, ["float32", "float16"]),
        (tf.float16, ["float16", "float16"]),
        ("float32", ["float32", "float32"]),
        (lambda variable: "float16" if variable.shape == (2,) else tf.float32, ["float16", "float32"]),
    ],
)
def test_accumulators_have_the_dtype_asked_for(dtype: Any, wanted: list[str]) -> None:
    spy = Spy()
    variables = [keras.Variable([1.0, 2.0]), keras.Variable([1.0], dtype="float16")]
    optimizer = GradientAccumulationOptimizer(spy, 2, dtype=dtype)
    for _ in range(2):
        optimizer.apply([tf.ones([2]), tf.ones([1], tf.float16)], variables)
    assert spy.seen == wanted
    np.testing.assert_allclose(variables[0].numpy(), [0.8, 1.8], rtol=1e-3)


def test_one_micro_batch_needs_no_wrapper() -> None:
    stock = keras.optimizers.SGD()
    assert GradientAccumulationOptimizer(stock, 1) is stock


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"num_mini_batches": 0}, ValueError, "num_mini_batches must be >= 1"),
        (
            {"num_mini_batches": 2, "reduction_method": "median"},
            ValueError,
            "Cannot parse median as one of GradientAccumulationReductionMethod. Valid values are: SUM, MEAN, "
            "RUNNING_MEAN.",
        ),
        (
            {
                "num_mini_batches": 2,
                "offload_weight_update_variables": False,
                "replicated_optimizer_state_sharding": True,
            },
            ValueError,
            "To use replicated_optimizer_state_sharding, optimizer state must be offloaded by using "
            "offload_weight_update_variables.",
        ),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        GradientAccumulationOptimizer(keras.optimizers.SGD(), **arguments)
    assert str(raised.value) == text


def test_only_keras_optimizers_are_wrapped() -> None:
    with pytest.raises(TypeError, match="wraps a keras.optimizers.Optimizer. Received: .*GradientDescent"):
        IpuOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))
    with pytest.raises(ValueError, match="does not know its variables yet"):
        IpuOptimizer("sgd").apply([tf.ones([])])


def test_options_without_effect_are_recorded() -> None:
    GradientAccumulationOptimizer("sgd", 2, offload_weight_update_variables=True)
    names = {item.name for item in ipu.emulation.ignored_arguments()}
    assert "GradientAccumulationOptimizer.offload_weight_update_variables" in names


def test_variables_without_a_gradient_and_rows_of_a_table() -> None:
    table, still = keras.Variable(np.ones((3, 2), np.float32)), keras.Variable(1.0)
    optimizer = GradientAccumulationOptimizer(keras.optimizers.SGD(1.0), 2)
    rows = tf.IndexedSlices(tf.ones([2, 2]), tf.constant([0, 0]), tf.constant([3, 2]))
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        for _ in range(2):
            optimizer.apply([rows, None], [table, still])
    np.testing.assert_allclose(table.numpy(), [[-3, -3], [1, 1], [1, 1]])
    assert still.numpy() == 1.0


def test_settings_of_the_wrapped_optimizer_show() -> None:
    optimizer = GradientAccumulationOptimizer(keras.optimizers.SGD(0.5), 2)
    optimizer.learning_rate = 0.25
    optimizer.clipnorm = 2.0
    assert float(optimizer.inner_optimizer.learning_rate.numpy()) == float(optimizer.lr.numpy()) == 0.25
    assert optimizer.inner_optimizer.clipnorm == optimizer.clipnorm == 2.0
    assert optimizer.weights == [] and optimizer.get_weights() == []
    with pytest.raises(ValueError, match="has 0 weights. Received: 1 values"):
        optimizer.set_weights([1.0])


def doubled(gradient: Any, variable: Any) -> Any:
    """Twice the gradient."""
    return gradient * 2.0


def increased(gradient: Any, variable: Any) -> Any:
    """The gradient plus one."""
    return gradient + 1.0


@pytest.mark.parametrize(
    ("wrapper", "wanted"), [(MapGradientOptimizer, 2 * (5 + 1)), (MapGradientOptimizerInvertedChaining, 2 * 5 + 1)]
)
def test_the_order_of_mapping(wrapper: Any, wanted: float) -> None:
    variable = keras.Variable(0.0)
    wrapper(wrapper(keras.optimizers.SGD(1.0), increased), doubled).apply([tf.constant(5.0)], [variable])
    assert variable.numpy() == -wanted


@pytest.mark.parametrize(
    ("wrapper", "wanted"), [(MapGradientOptimizer, 2 * (5 + 1)), (MapGradientOptimizerInvertedChaining, 2 * 5 + 1)]
)
def test_gradients_are_mapped_before_or_after_they_are_accumulated(wrapper: Any, wanted: float) -> None:
    variable = keras.Variable(0.0)
    optimizer = GradientAccumulationOptimizer(wrapper(keras.optimizers.SGD(1.0), increased), 2)
    for _ in range(2):
        optimizer.apply_gradients([(tf.constant(5.0), variable)])
    assert variable.numpy() == -wanted


keras.saving.register_keras_serializable(package="tests")(doubled)


def wrappers() -> dict[str, Callable[[], Any]]:
    """A maker of each kind of wrapper."""
    return {
        "plain": lambda: IpuOptimizer(keras.optimizers.Adam(0.05)),
        "mapped": lambda: MapGradientOptimizer(keras.optimizers.Adam(0.05), doubled),
        "inverted": lambda: MapGradientOptimizerInvertedChaining(keras.optimizers.SGD(0.05), doubled),
        "replicas": lambda: CrossReplicaOptimizer(keras.optimizers.SGD(0.05, momentum=0.5)),
        "accumulated": lambda: GradientAccumulationOptimizer(keras.optimizers.Adam(0.05), 5, reduction_method="MEAN"),
        "nested": lambda: GradientAccumulationOptimizer(CrossReplicaOptimizer(keras.optimizers.SGD(0.05)), 5),
    }


@pytest.mark.parametrize("name", ["mapped", "accumulated", "nested"])
def test_wrappers_on_the_device_are_as_on_the_host(name: str) -> None:
    build = lambda: keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])  # noqa: E731
    Program(name, build, numbers(40, 3), numbers(40, 2, seed=2), optimizer=wrappers()[name]).check()


@pytest.mark.parametrize("name", wrappers())
def test_a_wrapper_is_serialised(name: str) -> None:
    optimizer = wrappers()[name]()
    config = keras.optimizers.serialize(optimizer)
    again = keras.optimizers.deserialize(config)
    assert type(again) is type(optimizer)
    assert again.get_config() == optimizer.get_config()
    renamed = {**optimizer.get_config(), "name": "other"}
    assert type(optimizer).from_config(renamed).get_config() == renamed


def test_training_goes_on_from_a_saved_model(tmp_path: Path) -> None:
    """Saved in the middle of an accumulation."""
    straight, saved = (
        fitted(small_model(), GradientAccumulationOptimizer(keras.optimizers.Adam(0.05), 4)) for _ in range(2)
    )
    straight.fit(X, Y, batch_size=BATCH, shuffle=False, verbose=0)
    saved.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.fit(X, Y, batch_size=BATCH, shuffle=False, verbose=0)
    assert int(loaded.optimizer.iterations.numpy()) == 5
    for found, wanted in zip(loaded.get_weights(), straight.get_weights(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
