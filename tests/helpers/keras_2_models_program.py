"""A program for Keras 2 that `tests/keras_ipu/legacy/test_keras_2_models.py` runs: models compiled and saved."""

from __future__ import annotations

import builtins
import contextlib
import gc
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

import ipu_tf as ipu
import keras_ipu.legacy

X, Y = np.ones((8, 4), np.float32), np.ones((8, 1), np.float32)


def dense() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="ones")])


def worst(y: Any, predicted: Any) -> Any:
    return keras.ops.max(keras.ops.abs(y - predicted), axis=-1)


def metrics_of_each_output() -> None:
    """Keras 2 gives each output all metrics of a flat list, and copies of those that are objects."""
    total = keras.metrics.MeanSquaredError(name="total")
    given: list[tuple[Any, set[str]]] = [
        (["mae", worst], {"mae", "worst"}),
        ((worst, total), {"worst", "total"}),
        (["mae", worst, total], {"mae", "worst", "total"}),
        (worst, {"worst"}),
        ([["mae"], [worst, total]], set()),
    ]
    for metrics, names in given:
        x = keras.Input((4,))
        model = keras.Model(x, [keras.layers.Dense(1, name="a")(x), keras.layers.Dense(1, name="b")(x)])
        model.compile("sgd", ["mse", "mse"], metrics=metrics)
        shown = model.evaluate(X, [Y, 2 * Y], 4, verbose=0, return_dict=True)
        wanted = {f"{output}_{name}" for output in "ab" for name in names} or {"a_mae", "b_worst", "b_total"}
        assert set(shown) == {"loss", "a_loss", "b_loss"} | wanted, sorted(shown)
        for output, at, times in (("a", 0, 1), ("b", 1, 2)):
            if f"{output}_total" in shown:
                squares = (model.predict(X, 4, verbose=0)[at] - times * Y) ** 2
                np.testing.assert_allclose(shown[f"{output}_total"], np.mean(squares), rtol=1e-5)


def one_optimizer_after_the_other_model() -> None:
    optimizer = keras.optimizers.SGD(0.01, momentum=0.5)
    kernels = []
    for _ in range(3):
        model = dense()
        model.compile(optimizer, "mse")
        model.fit(X, Y, 4, verbose=0)
        assert int(model.optimizer.iterations) == 2
        kernels.append(model.get_weights()[0])
        del model
        gc.collect()
    np.testing.assert_array_equal(kernels[1:], kernels[:2])


def a_model_that_is_compiled_again() -> None:
    """It goes on with the slots of the optimizer, unless that was changed."""
    optimizer = keras.optimizers.SGD(0.01, momentum=0.5)
    models = [dense(), dense()]
    for epoch in range(2):
        for model in models:
            model.compile(optimizer, "mse")
            model.fit(X, Y, 4, verbose=0)
            assert int(model.optimizer.iterations) == 2 * (epoch + 1)
    np.testing.assert_array_equal(models[0].get_weights()[0], models[1].get_weights()[0])
    optimizer.learning_rate = 0.5
    models[1].compile(optimizer, "mse")
    assert float(models[1].optimizer.learning_rate) == 0.5


def _asked(answer: str) -> list[str]:
    """Has the user asked answer so; returns what will have been asked."""
    asked: list[str] = []

    def ask(prompt: object = "") -> str:
        asked.append(str(prompt))
        return answer

    builtins.input = ask
    return asked


def weights_are_overwritten_if_the_user_says_so() -> None:
    model, zeros = dense(), [np.zeros((4, 1)), np.zeros(1)]
    ones = model.get_weights()
    for name in ("w.h5", "w.hdf5", "checkpoint_of_it", "w.weights.h5"):
        path = os.path.join(tempfile.mkdtemp(), name)
        for answer, kept in (("n", ones), ("y", zeros)):
            model.set_weights(ones)
            model.save_weights(path)
            model.set_weights(zeros)
            asked = _asked(answer)
            model.save_weights(path, overwrite=False)
            model.load_weights(path)
            assert len(asked) == 1, (name, asked)
            np.testing.assert_array_equal(model.get_weights()[0], kept[0], name)


def models_in_folders_are_overwritten_if_the_user_says_so() -> None:
    for in_scope in (False, True):
        with ipu.ipu_strategy.IPUStrategy().scope() if in_scope else contextlib.nullcontext():
            model = dense()
        folder = Path(tempfile.mkdtemp()) / "model"
        for overwrite in (True, False):
            asked = _asked("n")
            model.save(str(folder), overwrite=overwrite)
            assert len(asked) == (not overwrite)
            (folder / "assets").mkdir(exist_ok=True)
            (folder / "assets" / "words.txt").write_text("a b c")
            model.save(str(folder), overwrite=False)
            assert (folder / "assets" / "words.txt").exists(), "the user has said no"
        _asked("y")
        shutil.rmtree(folder / "assets")
        model.save(str(folder), overwrite=False)


def weights_in_files_of_any_name() -> None:
    model, path = dense(), os.path.join(tempfile.mkdtemp(), "w")
    model.save_weights(path, save_format="h5")
    again = dense()
    again.set_weights([np.zeros((4, 1)), np.zeros(1)])
    again.load_weights(path)
    np.testing.assert_array_equal(again.get_weights()[0], model.get_weights()[0])


def checkpoints_are_read_as_a_whole() -> None:
    model, path = dense(), os.path.join(tempfile.mkdtemp(), "w")
    model.save_weights(path)
    model.load_weights(path, by_name=False, skip_mismatch=False)
    for option in ("by_name", "skip_mismatch"):
        try:
            model.load_weights(path, **{option: True})
        except ValueError as error:
            assert "from HDF5 files alone. Received: the TensorFlow checkpoint" in str(error), error
        else:
            raise AssertionError(f"{option} was dropped")


CHECKS: list[Callable[[], None]] = [
    metrics_of_each_output,
    one_optimizer_after_the_other_model,
    a_model_that_is_compiled_again,
    weights_are_overwritten_if_the_user_says_so,
    models_in_folders_are_overwritten_if_the_user_says_so,
    weights_in_files_of_any_name,
    checkpoints_are_read_as_a_whole,
]


def main() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    keras_ipu.legacy.install()
    for check in CHECKS:
        try:
            check()
        except Exception:  # noqa: BLE001 - each check is a test of its own
            traceback.print_exc()
        else:
            print(f"{check.__name__}: as Keras 2 has it")


if __name__ == "__main__":
    main()
