"""Callbacks see and change a model on the device as on stock Keras."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from tests.helpers.keras_parity import (
    STOCK_JIT,
    TIGHT,
    assert_same_numbers,
    counted,
    numbers,
    on_side,
    sgd,
    weights_of,
)

# Keras makes arrays of TensorFlow variables in a way that NumPy 2 no longer likes.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

X = numbers(40, 5)
Y = numbers(40, 2, seed=2)


def model(on_device: bool, optimizer: Any = None, **compiled: Any) -> keras.Model:
    """A dense model, the same at every call."""
    keras.utils.set_random_seed(1)

    def build() -> keras.Model:
        made = keras.Sequential([keras.Input((5,)), layers.Dense(2)])
        made.compile(optimizer or sgd(), "mse", metrics=["mae"], jit_compile=STOCK_JIT, **compiled)
        return made

    return on_side(on_device, build)


Watch = Callable[[keras.Model, list[Any]], list[keras.callbacks.Callback]]


def assert_same_watched(watch: Watch, epochs: int = 3, **compiled: Any) -> None:
    """Fits both sides with the callbacks of `watch(model, seen)` and compares what they put into `seen`."""
    sides = []
    for on_device in (False, True):
        made = model(on_device, **compiled)
        seen: list[Any] = []
        arguments = {"batch_size": 4, "epochs": epochs, "verbose": 0, "shuffle": False, "validation_data": (X, Y)}
        history = made.fit(X, Y, callbacks=watch(made, seen), **arguments).history
        sides.append((seen, history, weights_of(made)))
    (wanted, wanted_history, wanted_weights), (found, history, weights) = sides
    assert_same_numbers(history, wanted_history, TIGHT)
    assert len(found) == len(wanted)
    for got, expected in zip([*found, *weights.values()], [*wanted, *wanted_weights.values()], strict=True):
        np.testing.assert_allclose(got, expected, rtol=TIGHT, atol=TIGHT)


def now(made: keras.Model) -> keras.Model:
    """The model with its variables as they are now: Keras on JAX fills them when asked to, or at the end."""
    if keras.backend.backend() == "jax":
        made.jax_state_sync()
    return made


@pytest.mark.parametrize("steps_per_execution", [1, 5])
def test_a_lambda_callback_sees_the_weights_of_its_batch(steps_per_execution: int) -> None:
    def watch(made: keras.Model, seen: list[Any]) -> list[keras.callbacks.Callback]:
        def look(batch: int, logs: Any) -> None:
            seen.extend([batch, logs["loss"], now(made).layers[0].kernel.numpy(), made.optimizer.iterations.numpy()])

        return [keras.callbacks.LambdaCallback(on_train_batch_end=look)]

    assert_same_watched(watch, steps_per_execution=steps_per_execution)


QUIET: dict[str, Callable[[Path], keras.callbacks.Callback]] = {
    "History": lambda path: looking(keras.callbacks.History)(),
    "CSVLogger": lambda path: looking(keras.callbacks.CSVLogger)(str(path / "log.csv")),
    "ProgbarLogger": lambda path: looking(keras.callbacks.ProgbarLogger)(),
    "TerminateOnNaN": lambda path: looking(keras.callbacks.TerminateOnNaN)(),
}


def looking(base: type[keras.callbacks.Callback]) -> type[Any]:
    """A subclass of a callback that itself looks at logs only; it changes weights, and notes them and the steps."""

    class Looking(base):
        noted: list[Any]

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            super().on_train_batch_end(batch, logs)
            made = now(self.model)
            made.layers[0].kernel.assign(made.layers[0].kernel.numpy() * 0.99)
            self.noted.extend([made.optimizer.iterations.numpy(), made.layers[0].kernel.numpy()])

    return Looking


@pytest.mark.parametrize("name", QUIET)
@pytest.mark.parametrize("steps_per_execution", [1, 5])
def test_a_subclass_of_a_callback_that_reads_logs_sees_the_weights(
    name: str, steps_per_execution: int, tmp_path: Path
) -> None:
    def watch(made: keras.Model, seen: list[Any]) -> list[keras.callbacks.Callback]:
        callback: Any = QUIET[name](tmp_path)
        callback.noted = seen
        return [callback]

    assert_same_watched(watch, epochs=2, steps_per_execution=steps_per_execution)


class Everywhere(keras.callbacks.Callback):
    """Notes a weight and the number of steps wherever Keras calls."""

    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        for name in dir(self):
            if name.startswith("on_"):
                setattr(self, name, lambda *args, **kwargs: seen.extend(self.look()))

    def look(self) -> tuple[Any, Any]:
        """Returns the variables as a callback sees them now."""
        return self.model.layers[0].bias.numpy(), self.model.optimizer.iterations.numpy()


def test_every_hook_sees_the_truth() -> None:
    assert_same_watched(lambda made, seen: [Everywhere(seen)], epochs=2, steps_per_execution=5)


def test_a_model_changed_in_a_callback_trains_on_from_there() -> None:
    def watch(made: keras.Model, seen: list[Any]) -> list[keras.callbacks.Callback]:
        def change(batch: int, logs: Any) -> None:
            if batch == 4:
                now(made).optimizer.learning_rate = 0.01 * (len(seen) + 1)
                made.layers[0].bias.assign([1.0, -1.0])
            seen.append(now(made).layers[0].kernel.numpy())

        return [keras.callbacks.LambdaCallback(on_train_batch_end=change)]

    assert_same_watched(watch)


def test_learning_rate_callbacks() -> None:
    def watch(made: keras.Model, seen: list[Any]) -> list[keras.callbacks.Callback]:
        return [
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.1 / (epoch + 1) if epoch < 2 else rate),
            keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.5, patience=1, min_delta=10.0),
            keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: seen.append(made.optimizer.learning_rate.numpy())),
        ]

    assert_same_watched(watch, epochs=5, steps_per_execution=10)


def test_early_stopping_restores_the_best_weights() -> None:
    def watch(made: keras.Model, seen: list[Any]) -> list[keras.callbacks.Callback]:
        worse = keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, _: setattr(made.optimizer, "learning_rate", 0.01 if epoch < 2 else 1.0)
        )
        stop = keras.callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True)
        return [worse, stop]

    assert_same_watched(watch, epochs=12, steps_per_execution=10)


def test_checkpoints_and_logs(tmp_path: Path) -> None:
    def watch(made: keras.Model, seen: list[Any]) -> list[keras.callbacks.Callback]:
        def read(epoch: int, logs: Any) -> None:
            best = keras.models.load_model(tmp_path / f"{epoch}.keras")
            seen.extend(best.get_weights() + [variable.numpy() for variable in best.optimizer.variables])

        return [
            keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.keras"),
            keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: read(epoch + 1, logs)),
            keras.callbacks.CSVLogger(tmp_path / "log.csv"),
            keras.callbacks.TerminateOnNaN(),
        ]

    assert_same_watched(watch)


def test_stop_training_ends_at_the_execution() -> None:
    made = model(True, steps_per_execution=2)
    stop = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: setattr(made, "stop_training", batch >= 3)
    )
    with counted() as device:
        made.fit(X, Y, batch_size=4, epochs=3, verbose=0, callbacks=[stop])
    assert (device().executions, device().steps) == (2, 4)
    assert int(made.optimizer.iterations.numpy()) == 4


def test_callback_list_of_the_user_sees_the_truth() -> None:
    def watch(made: keras.Model, seen: list[Any]) -> Any:
        def note(batch: int, logs: Any) -> None:
            seen.append(now(made).layers[0].bias.numpy())

        look = keras.callbacks.LambdaCallback(on_train_batch_end=note)
        return keras.callbacks.CallbackList([look], add_history=True, model=made, epochs=1, steps=10)

    assert_same_watched(watch, epochs=1)


def test_callback_list_of_the_user_that_ran_before_sees_the_truth() -> None:
    """Nothing is left in it by a run in which no callback looked at batches."""
    sides = []
    for on_device in (False, True):
        made, seen = model(on_device), list[Any]()
        quiet = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None)
        in_order = keras.callbacks.TerminateOnNaN()  # without it stock Keras on JAX calls callbacks in other threads
        several = keras.callbacks.CallbackList([quiet, in_order], add_history=True, model=made, epochs=1, steps=10)
        before = list(several.callbacks)
        made.fit(X, Y, batch_size=4, verbose=0, shuffle=False, callbacks=several)
        assert several.callbacks == before

        def look(batch: int, logs: Any, made: Any = made, seen: list[Any] = seen) -> None:
            seen.append(now(made).optimizer.iterations.numpy())
            made.layers[0].kernel.assign(made.layers[0].kernel.numpy() * 0.99)

        several.callbacks.append(keras.callbacks.LambdaCallback(on_train_batch_end=look))
        made.fit(X, Y, batch_size=4, verbose=0, shuffle=False, callbacks=several)
        sides.append((seen, weights_of(made)))
    (wanted, wanted_weights), (found, weights) = sides
    assert found == wanted == list(range(11, 21))
    for mine, stock in zip(weights.values(), wanted_weights.values(), strict=True):
        np.testing.assert_allclose(mine, stock, rtol=TIGHT, atol=TIGHT)


def test_variables_are_the_truth_after_fit() -> None:
    made = model(True, steps_per_execution=10)
    kernel = made.layers[0].kernel
    before = kernel.numpy()
    made.fit(X, Y, batch_size=4, verbose=0)
    assert int(made.optimizer.iterations.numpy()) == 10
    assert np.abs(kernel.numpy() - before).min() > 0
    np.testing.assert_allclose(made(X[:4]), made.predict(X[:4], batch_size=4, verbose=0), rtol=TIGHT)


def test_the_progress_bar_is_that_of_stock_keras(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for on_device in (False, True):
        made = model(on_device)
        for verbose in (1, 2):
            made.fit(X, Y, batch_size=4, epochs=2, verbose=verbose, shuffle=False, validation_data=(X, Y))
        made.evaluate(X, Y, batch_size=4)
        made.predict(X, batch_size=4)
        shown.append(_timeless(capsys.readouterr().out))
    assert "val_mae" in shown[0][1]
    assert shown[1] == shown[0]


def test_arguments_of_fit_are_bound_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[str] = []
    signature = inspect.signature

    def watched(function: Any) -> inspect.Signature:
        bound.append(getattr(function, "__name__", ""))
        return signature(function)

    made = model(True)
    monkeypatch.setattr(inspect, "signature", watched)
    made.fit(X, Y, batch_size=4, verbose=0)
    assert bound.count("fit") == 1


def _timeless(text: str) -> list[str]:
    """The last state of each line, without times and the blanks that fill up for them."""
    lines = [re.split("\r|\b", line)[-1] for line in text.split("\n")]
    plain = [re.sub(r"\d+(s|ms|us|μs)(/step|/epoch)?", "", re.sub("\x1b\\[[0-9;]*m", "", line)) for line in lines]
    return [" ".join(line.split()) for line in plain]
