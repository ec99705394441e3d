"""`predict` with placeholders for batches and with steps run ahead: results are bit-identical."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import configure, ipu_scope, numbers

# Keras makes arrays of TensorFlow variables in a way that NumPy 2 no longer likes.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

BATCH, BATCHES = 4, 40
X = numbers(BATCH * BATCHES, 6)
Data = dict[str, Any]


class Watcher(keras.callbacks.Callback):
    """Keeps what it is told of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, Any]] = []

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keeps the predictions."""
        self.seen.append((batch, keras.tree.map_structure(np.asarray, logs["outputs"])))


def model() -> keras.Model:
    """Of two outputs; made in whatever scope there is."""
    keras.utils.set_random_seed(1)
    given = keras.Input((6,))
    hidden = layers.Dense(8, "tanh")(given)
    return keras.Model(given, [layers.Dense(3)(hidden), layers.Reshape((2, 4))(hidden)])


def ours(replicas: int, steps_per_execution: int) -> keras.Model:
    configure(replicas)
    with ipu_scope():
        made = model()
        made.compile(steps_per_execution=steps_per_execution)
    return made


def dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(X).batch(BATCH, drop_remainder=True)


DATA: dict[str, tuple[int, Callable[[], Data]]] = {
    "arrays": (1, lambda: {"x": X, "batch_size": BATCH}),
    "tensors": (1, lambda: {"x": tf.constant(X), "batch_size": BATCH}),
    "a part": (1, lambda: {"x": X, "batch_size": BATCH, "steps": 12}),
    "a dataset": (1, lambda: {"x": dataset()}),
    "without an end": (1, lambda: {"x": dataset().repeat(), "steps": 48}),
    "of unknown length": (1, lambda: {"x": dataset().filter(lambda x: tf.reduce_max(x) < 1e9)}),
    "replicas": (2, lambda: {"x": X, "batch_size": BATCH}),
}


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # where the length was not known
@pytest.mark.parametrize("steps_per_execution", [1, 4])
@pytest.mark.parametrize("name", DATA)
def test_the_predictions_are_those_of_single_steps(name: str, steps_per_execution: int) -> None:
    replicas, data = DATA[name]
    made, watcher = ours(replicas, steps_per_execution), Watcher()
    with device_work() as work:
        found = made.predict(**data(), verbose=0)
    with device_work() as watched:
        wanted = made.predict(**data(), verbose=0, callbacks=[watcher])
    stock = model()
    stock.set_weights(made.get_weights())
    expected = stock.predict(**data(), verbose=0)
    batches = len(expected[0]) // BATCH
    steps = batches // replicas
    for key in range(2):
        assert found[key].shape == expected[key].shape
        np.testing.assert_array_equal(found[key], wanted[key])
        np.testing.assert_array_equal(np.concatenate([outputs[key] for _, outputs in watcher.seen]), wanted[key])
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-5, atol=1e-6)
    assert work.counts.steps == watched.counts.steps == steps
    # Where the number of batches is not known, one more execution finds that there is none.
    assert watched.counts.executions - steps / steps_per_execution in ((0, 1) if "unknown" in name else (0,))
    if steps_per_execution == 1 and "unknown" not in name:
        assert work.counts.executions < steps / 2


def test_a_second_run_compiles_nothing() -> None:
    made = ours(1, 1)
    made.predict(X, BATCH, verbose=0)
    with device_work() as work:
        made.predict(X, BATCH, verbose=0)
        made.predict(X[:BATCH], BATCH, verbose=0)
    assert work.counts.programs == 0


def test_batches_of_the_users_own_code_are_read_as_keras_asks() -> None:
    made, read = ours(1, 1), list[int]()

    def batches() -> Iterator[tuple[np.ndarray]]:
        for place in range(3):
            read.append(place)
            yield (X[place * BATCH : (place + 1) * BATCH],)

    class Asks(Watcher):
        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            super().on_predict_batch_end(batch, logs)
            asked.append(len(read))

    asked: list[int] = []
    made.predict(batches(), steps=3, verbose=0, callbacks=[Asks()])
    assert len(asked) == 3
    assert asked[0] < 3


@pytest.mark.parametrize("steps_per_execution", [1, 4])
def test_a_dataset_that_ends_too_early(steps_per_execution: int) -> None:
    short = dataset().filter(lambda x: tf.reduce_max(x) < math.inf).take(10)
    made = ours(1, steps_per_execution)
    with pytest.warns(UserWarning, match="ran out of data"):
        found = made.predict(short, steps=16, verbose=0)
    np.testing.assert_array_equal(found[0], made.predict(X, BATCH, verbose=0)[0][: 10 * BATCH])


@pytest.mark.parametrize("steps_per_execution", [1, 4])
def test_an_error_of_the_data_is_raised_and_the_model_goes_on(steps_per_execution: int) -> None:
    def fails(x: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.assert_less(tf.reduce_max(x), 100.0, "too large")]):
            return tf.identity(x)

    made = ours(1, steps_per_execution)
    far = np.where(np.arange(48) > 30, 1000, 0)[:, None].astype(np.float32)
    bad = tf.data.Dataset.from_tensor_slices(X[:48] + far).batch(4, True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="too large"):
        made.predict(bad.map(fails), verbose=0)
    assert made.predict(X, BATCH, verbose=0)[0].shape == (BATCH * BATCHES, 3)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="on JAX the function is given state and iterator anyway")
def test_a_predict_function_of_the_users_own_is_given_batches() -> None:
    made, shapes = ours(1, 2), list[Any]()
    function = made.make_predict_function()

    def looking(batches: list[Any]) -> Any:
        shapes.extend(x.shape for x in tf.nest.flatten(batches))
        return function(batches)

    wanted = made.predict(X, BATCH, verbose=0)
    made.predict_function = looking
    found = made.predict(X, BATCH, verbose=0)
    assert shapes == [(BATCH, 6)] * BATCHES
    np.testing.assert_array_equal(found[0], wanted[0])


class Energy(layers.Layer):
    """One number for a batch."""

    def call(self, x: Any) -> Any:
        return keras.ops.mean(x)


def with_energy(steps_per_execution: int = 1) -> keras.Model:
    keras.utils.set_random_seed(1)
    given = keras.Input((6,))
    made = keras.Model(given, [layers.Dense(2)(given), Energy()(given)])
    made.compile(steps_per_execution=steps_per_execution)
    return made


def assert_same_outputs(found: Any, wanted: Any) -> None:
    assert [np.shape(each) for each in found] == [np.shape(each) for each in wanted]
    for mine, stock in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, stock, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("replicas", "steps_per_execution"), [(1, 1), (1, 4), (2, 1)])
def test_one_batch_gives_a_number_without_dimensions(replicas: int, steps_per_execution: int) -> None:
    wanted = with_energy().predict_on_batch(X[:8])
    configure(replicas)
    with ipu_scope():
        made = with_energy(steps_per_execution)
    assert_same_outputs(made.predict_on_batch(X[:8]), wanted)
    assert np.shape(wanted[1]) == ()


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="stock Keras on JAX cannot join numbers")
@pytest.mark.parametrize(("samples", "made_by"), [(8, "array"), (20, "array"), (20, "generator")])
def test_numbers_of_batches_are_joined_as_in_stock_keras(samples: int, made_by: str) -> None:
    def data() -> Data:
        if made_by == "array":
            return {"x": X[:samples], "batch_size": 8}
        return {"x": ((X[place : min(place + 8, samples)],) for place in range(0, samples, 8)), "steps": 3}

    wanted = with_energy().predict(**data(), verbose=0)
    configure()
    with ipu_scope():
        made = with_energy()
    assert_same_outputs(made.predict(**data(), verbose=0), wanted)
