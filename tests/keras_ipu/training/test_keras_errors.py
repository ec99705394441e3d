"""Errors of IPU models: clear messages, no lost state, no hang, no thread left."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from ipu_tf.config import reset_ipu_configuration
from ipu_tf.emulation import clear_session
from tests.helpers.keras_parity import configure, counted, ipu_scope, numbers, weights_of
from tests.helpers.sigint import press_ctrl_c, sigint_interrupts  # noqa: F401 - a fixture

X = numbers(40, 5)
Y = numbers(40, 2, seed=2)


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    """Fails where a test leaves a Python thread behind."""
    before = set(threading.enumerate())
    yield
    gc.collect()  # Keras's own threads for callbacks end when its list of callbacks is collected
    for thread in _started_since(before):
        thread.join(timeout=5)
    assert [thread.name for thread in _started_since(before)] == []


def _started_since(before: set[threading.Thread]) -> list[threading.Thread]:
    """Threads that Python started; TensorFlow's own, which once ran a Python function, are dummies.

    Those in which TensorFlow's iterators end may take up to a minute, which is why they have threads of their own.
    """
    expected = ("Dummy", "ipu-destroy-iterator")
    return [t for t in threading.enumerate() if t not in before and not t.name.startswith(expected)]


def build(*made: Any) -> keras.Model:
    """A dense model in the scope, with these layers ahead."""
    configure()
    keras.utils.set_random_seed(1)
    with ipu_scope():
        return keras.Sequential([keras.Input((5,)), *made, layers.Dense(2)])


def compiled(*made: Any, **arguments: Any) -> keras.Model:
    """The same, compiled."""
    model = build(*made)
    model.compile("sgd", "mse", **arguments)
    return model


def test_no_configuration() -> None:
    model = compiled()
    reset_ipu_configuration()
    with pytest.raises(tf.errors.FailedPreconditionError, match="configure_ipu_system"):
        model.fit(X, Y, batch_size=4, verbose=0)
    configure()
    model.fit(X, Y, batch_size=4, verbose=0)


@pytest.mark.usefixtures("graphcore_rules")
def test_run_eagerly_by_graphcores_rules() -> None:
    with pytest.raises(RuntimeError, match="Keras models cannot run eagerly when using `IPUStrategy`"):
        compiled(run_eagerly=True)
    model = compiled()
    model.run_eagerly = True
    with pytest.raises(RuntimeError, match="Set `run_eagerly=False` when calling `compile`"):
        model.fit(X, Y, batch_size=4, verbose=0)


@pytest.mark.usefixtures("graphcore_rules")
def test_batches_without_drop_remainder() -> None:
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
    with pytest.raises(ValueError, match="not fully defined.*make sure to set `drop_remainder=True`"):
        compiled().fit(data, shuffle=False, verbose=0)
    with pytest.raises(ValueError, match="not fully defined"):
        compiled().fit(X, Y, batch_size=4, validation_data=data, verbose=0)
    with pytest.raises(ValueError, match="not fully defined"):
        compiled().predict(data, verbose=0)


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_an_infinite_dataset_without_a_number_of_steps(method: str) -> None:
    data = tf.data.Dataset.from_tensors((X[:4], Y[:4])).repeat()
    with pytest.raises(ValueError, match="When providing an infinite dataset, you must specify the number of steps"):
        getattr(compiled(), method)(data, verbose=0)


@pytest.mark.usefixtures("graphcore_rules")
@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_partial_batch_of_arrays(method: str) -> None:
    arguments = (X,) if method == "predict" else (X, Y)
    with pytest.raises(ValueError, match=r"has a partial batch.*`batch_size` of your model \(currently set to 16\)"):
        getattr(compiled(), method)(*arguments, batch_size=16, verbose=0)


@pytest.mark.usefixtures("graphcore_rules")
def test_steps_per_execution_that_does_not_divide() -> None:
    with pytest.raises(ValueError, match=r"`steps_per_execution` \(4\) must be a divisor of .* batches \(10\)"):
        compiled(steps_per_execution=4).fit(X, Y, batch_size=4, verbose=0)


@pytest.mark.usefixtures("graphcore_rules")
def test_steps_per_execution_beyond_the_data(caplog: pytest.LogCaptureFixture) -> None:
    clear_session()
    caplog.set_level(logging.WARNING, "ipu_tf")
    model = compiled(steps_per_execution=64)
    with counted() as device:
        model.fit(X, Y, batch_size=4, epochs=2, verbose=0)
        model.evaluate(X, Y, batch_size=4, verbose=0)
    assert (device().executions, device().steps) == (3, 30)
    assert caplog.text.count("`steps_per_execution` (64) is cut to the 10 steps that there are") == 1


@pytest.mark.usefixtures("graphcore_rules")
def test_too_little_data() -> None:
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4, drop_remainder=True)
    with pytest.raises(ValueError, match=r"at least 12 batches \(currently it can only generate 10 batches\)"):
        compiled().fit(data, steps_per_epoch=12, shuffle=False, verbose=0)


class OwnFunction(keras.Model):
    """Overrides what the device needs."""

    def make_train_function(self, force: bool = False) -> None:
        """Nothing."""


def test_overridden_functions() -> None:
    configure()
    with ipu_scope():
        inputs = keras.Input((5,))
        model = OwnFunction(inputs, layers.Dense(2)(inputs))
        model.compile("sgd", "mse")
    with pytest.raises(RuntimeError, match="The function `make_train_function` for the model .* has been overridden"):
        model.fit(X, Y, batch_size=4, verbose=0)


def _fails_at(batch: int, error: BaseException) -> tf.data.Dataset:
    """Batches of 4, of which making one raises."""

    def check(index: np.ndarray) -> np.ndarray:
        if index == batch:
            raise error
        return index

    def checked(index: tf.Tensor, data: Any) -> Any:
        (same,) = tf.py_function(check, [index], [tf.int64])
        with tf.control_dependencies([same]):
            return tf.nest.map_structure(tf.identity, data)

    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(4, drop_remainder=True).enumerate().map(checked)


def _after(steps: int) -> list[np.ndarray]:
    model = compiled()
    model.fit(X, Y, batch_size=4, shuffle=False, steps_per_epoch=steps, verbose=0)
    return list(weights_of(model).values())


@pytest.mark.parametrize("steps_per_execution", [1, 10])
def test_an_error_in_a_map_function_reaches_the_user(steps_per_execution: int) -> None:
    model = compiled(steps_per_execution=steps_per_execution)
    with counted() as device, pytest.raises(tf.errors.OpError) as raised:
        model.fit(_fails_at(6, ZeroDivisionError("no seventh batch")), shuffle=False, verbose=0)
    assert "ZeroDivisionError: no seventh batch" in str(raised.value)
    assert "in check" in str(raised.value)  # the user's own traceback
    assert device().steps == 6
    assert int(model.optimizer.iterations.numpy()) == 6
    np.testing.assert_equal(list(weights_of(model).values()), _after(6))
    model.fit(X, Y, batch_size=4, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 16


def test_an_error_in_a_generator_reaches_the_user() -> None:
    def generator() -> Iterator[Any]:
        for start in range(0, 12, 4):
            yield X[start : start + 4], Y[start : start + 4]
        raise ZeroDivisionError("no fourth batch")

    model = compiled(steps_per_execution=5)
    with pytest.raises((ZeroDivisionError, tf.errors.OpError), match="no fourth batch"):
        model.fit(generator(), steps_per_epoch=10, shuffle=False, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 3
    np.testing.assert_equal(list(weights_of(model).values()), _after(3))


@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt])
def test_an_exception_in_a_callback(kind: type[BaseException]) -> None:
    def interrupt(batch: int, logs: Any) -> None:
        if batch == 5:
            raise kind("stop here")

    model = compiled(steps_per_execution=2)
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=interrupt)
    with pytest.raises(kind, match="stop here"):
        model.fit(X, Y, batch_size=4, shuffle=False, verbose=0, callbacks=[callback])
    assert int(model.optimizer.iterations.numpy()) == 6
    np.testing.assert_equal(list(weights_of(model).values()), _after(6))
    model.fit(X, Y, batch_size=4, verbose=0)


@pytest.mark.usefixtures("sigint_interrupts")
@pytest.mark.parametrize("steps_per_execution", [1, 10])
def test_ctrl_c_loses_nothing(steps_per_execution: int) -> None:
    def press(index: np.ndarray) -> np.ndarray:
        if index >= 5:  # and again, should nobody have heard it: Python drops what a signal raises in some places
            press_ctrl_c()
            time.sleep(0.2)  # until the main thread has seen it
        return index

    def pressed(index: tf.Tensor, data: Any) -> Any:
        (same,) = tf.py_function(press, [index], [tf.int64])
        with tf.control_dependencies([same]):
            return tf.nest.map_structure(tf.identity, data)

    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4, drop_remainder=True).enumerate().map(pressed)
    # No element is read ahead of its execution: a signal in between is Python's, which loses one now and then.
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    data = data.with_options(options)
    model = compiled(steps_per_execution=steps_per_execution)
    with counted() as device, pytest.raises(KeyboardInterrupt):
        model.fit(data, shuffle=False, verbose=0)
    assert 0 < device().steps < 10
    assert int(model.optimizer.iterations.numpy()) == device().steps
    np.testing.assert_equal(list(weights_of(model).values()), _after(device().steps))


@pytest.mark.usefixtures("graphcore_rules")
@pytest.mark.parametrize("steps_per_execution", [1, 5])
def test_a_shape_that_changes_in_mid_epoch(steps_per_execution: int) -> None:
    def generator() -> Iterator[Any]:
        for size in (4, 4, 4, 2, 4):
            yield X[:size], Y[:size]

    model = compiled(steps_per_execution=steps_per_execution)
    with pytest.raises(Exception, match=r"\(2, 5\)") as raised:
        model.fit(generator(), steps_per_epoch=5, shuffle=False, verbose=0)
    assert "(4, 5)" in str(raised.value)
    assert int(model.optimizer.iterations.numpy()) == 3


class HostOnly(layers.Layer):
    """Calls Python from within a step."""

    def call(self, x: Any) -> Any:
        """The input."""
        return tf.ensure_shape(tf.py_function(lambda value: value, [x], tf.float32), x.shape)


class Ragged(layers.Layer):
    """Makes a tensor whose shape depends on values."""

    def call(self, x: Any) -> Any:
        """The input, plus how many are positive."""
        return x + tf.cast(tf.shape(tf.unique(tf.reshape(tf.abs(x), [-1]))[0])[0], tf.float32)


@pytest.mark.parametrize(("layer", "op"), [(HostOnly, "EagerPyFunc"), (Ragged, "Unique")])
def test_an_op_the_device_cannot_run(layer: type[layers.Layer], op: str) -> None:
    model = compiled(layer())
    before = list(weights_of(model).values())
    with counted() as device, pytest.raises((ValueError, NotImplementedError), match=op) as raised:
        model.fit(X, Y, batch_size=4, verbose=0)
    assert "Nothing was run" in str(raised.value)
    assert device().executions == 0
    np.testing.assert_equal(list(weights_of(model).values()), before)
    assert int(model.optimizer.iterations.numpy()) == 0
    assert model(X[:4]).shape == (4, 2)
