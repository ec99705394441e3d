"""Keras models exported for serving: run with Keras on TensorFlow here, on JAX by `test_keras_on_jax.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import ipu_tf as ipu
from ipu_tf import serving
from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import integers, numbers
from tests.helpers.one_ipu import strategy
from tests.helpers.some_ipus import ipus
from tests.ipu_tf.serving.test_serving import loaded, run

__all__ = ["strategy"]
pytestmark = pytest.mark.usefixtures("strategy")

X = np.arange(4, dtype=np.float32)
#: Runs SavedModels in stock TensorFlow: reads the folder of each, beside which is a file with inputs and results by
#: name, and answers with what is wrong.
STOCK = """
import json, sys, traceback
import numpy as np
import tensorflow as tf

def check(path):
    function, data = tf.saved_model.load(path).signatures["serving_default"], dict(np.load(path + ".npz"))
    inputs = {name: tf.constant(data.pop(name)) for name in function.structured_input_signature[1]}
    found = function(**inputs)
    assert sorted(found) == sorted(data), (sorted(found), sorted(data))
    for name, wanted in data.items():
        np.testing.assert_allclose(found[name].numpy(), wanted, rtol=1e-5, atol=1e-5)
    assert not [name for name in sys.modules if name.split(".")[0] in ("keras_ipu", "ipu_tf")]

for line in sys.stdin:
    wrong = ""
    try:
        check(line.rstrip())
    except Exception:
        wrong = traceback.format_exc()
    print(json.dumps(wrong), flush=True)
"""


@pytest.fixture(scope="module")
def wrong_in_stock_tensorflow() -> Iterator[Callable[[Path], str]]:
    """A process with stock TensorFlow, which says what is wrong with an exported model; "" if nothing is."""
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", STOCK]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def ask(folder: Path) -> str:
            print(folder, file=asked, flush=True)
            return str(json.loads(answers.readline()))

        yield ask


class Subclassed(keras.Model):
    """Adds its two inputs, and gives the sum and its negative."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(4, kernel_initializer="ones")
        self.dropout = layers.Dropout(0.5)

    def call(self, inputs: Any) -> Any:
        total = self.dropout(self.dense(inputs[0])) + inputs[1]
        return total, -total


def subclassed() -> keras.Model:
    model = Subclassed()
    model.build([(8, 4), (8, 4)])
    return model


def sequential() -> keras.Model:
    parts = [
        layers.Conv2D(4, 3, activation="gelu"),
        layers.BatchNormalization(),
        layers.MaxPooling2D(2),
        layers.Dropout(0.5),
        layers.Flatten(),
        layers.Dense(3, "softmax"),
    ]
    return keras.Sequential([keras.Input((8, 8, 3), name="image"), *parts])


def functional() -> keras.Model:
    left, words = keras.Input((5, 4), name="left"), keras.Input((7,), dtype="int32", name="words")
    read = layers.GRU(6)(layers.Embedding(9, 4)(words))
    both = layers.Concatenate()([layers.LSTM(6)(left), read])
    attended = layers.LayerNormalization()(layers.MultiHeadAttention(2, 4)(left, left))
    return keras.Model({"left": left, "words": words}, [layers.Dense(2)(both), attended])


class Sorted(keras.layers.Layer):
    """The largest values and where they were: an op that StableHLO has in several versions."""

    def call(self, inputs: Any) -> Any:
        return keras.ops.top_k(inputs, 2)


def half() -> keras.Model:
    x = keras.Input((6,), name="x")
    values, places = Sorted()(layers.Dense(5, dtype="mixed_float16")(x))
    return keras.Model(x, [layers.Dense(3, dtype="float32")(values), places])


def sixteenths(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers whose products and short sums float16 has exactly: processors round on the way at different places."""
    return np.round(8 * numbers(*shape, seed=seed)) / np.float32(16)


MODELS: dict[str, tuple[Callable[[], keras.Model], dict[str, np.ndarray]]] = {
    "sequential": (sequential, {"image": numbers(2, 8, 8, 3)}),
    "functional": (functional, {"left": numbers(2, 5, 4), "words": integers(9, 2, 7)}),
    "subclassed": (subclassed, {"input_1": numbers(2, 4), "input_2": numbers(2, 4, seed=1)}),
    "half": (half, {"x": sixteenths(2, 6)}),
}


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_models_give_what_they_predict_on_the_device_and_in_stock_tensorflow(
    kind: str, tmp_path: Path, wrong_in_stock_tensorflow: Callable[[Path], str]
) -> None:
    make, inputs = MODELS[kind]
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = make()
        model.compile(steps_per_execution=1)
    for place, weight in enumerate(model.trainable_weights):
        weight.assign(sixteenths(*weight.shape, seed=place))
    one_or_all = list(inputs.values()) if len(inputs) > 1 else next(iter(inputs.values()))
    given = inputs if kind == "functional" else one_or_all
    wanted = keras.tree.flatten(model.predict(given, batch_size=2, verbose=0))
    function = model.export_for_ipu_serving(tmp_path / kind, batch_size=2)
    with device_work() as work:
        found = function(*keras.tree.flatten(given))
    assert (work.counts.executions, work.counts.steps) == (1, 1)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    names = sorted(loaded(tmp_path / kind).structured_input_signature[1])
    named = dict(zip(names, keras.tree.flatten(given), strict=True))
    np.savez(tmp_path / f"{kind}.npz", **named, **{f"output_{i}": each for i, each in enumerate(wanted)})
    assert wrong_in_stock_tensorflow(tmp_path / kind) == ""


def test_trained_weights_are_frozen(tmp_path: Path) -> None:
    """The exported function has the weights of `fit`, and keeps them when the model trains on."""
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((4,)), layers.Dense(2), layers.BatchNormalization()])
        model.compile("sgd", "mse", steps_per_execution=2)
    x, y = numbers(8, 4), numbers(8, 2, seed=1)
    model.fit(x, y, batch_size=4, verbose=0)
    wanted = model.predict(x, batch_size=4, verbose=0)
    function = model.export_for_ipu_serving(tmp_path, batch_size=4)
    model.fit(x, y, batch_size=4, epochs=3, verbose=0)
    assert np.abs(model.predict(x, batch_size=4, verbose=0) - wanted).max() > 1e-3
    for rows in (slice(0, 4), slice(4, 8)):
        np.testing.assert_allclose(function(x[rows])[0], wanted[rows], rtol=1e-5, atol=1e-6)


def test_an_execution_makes_several_results(tmp_path: Path) -> None:
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = subclassed()
        model.compile(steps_per_execution=16)
    function = serving.export_keras(model, tmp_path, batch_size=2, output_names=["plus", "minus"])
    a, b = np.ones([2, 4], np.float32), np.tile(X, (2, 1))
    with device_work() as work:
        result = function(a, b)
    np.testing.assert_allclose(result["plus"], 4 + b)
    np.testing.assert_allclose(result["minus"], -4 - b)
    assert work.counts.executions == 1
    np.testing.assert_allclose(loaded(tmp_path)(input_1=tf.constant(a), input_2=tf.constant(b))["plus"], 4 + b)


def test_functional_models_with_named_inputs(tmp_path: Path) -> None:
    with ipu.ipu_strategy.IPUStrategy().scope():
        inputs = {name: keras.Input((4,), batch_size=3, name=name) for name in ("left", "right")}
        model = keras.Model(inputs, layers.Subtract()([inputs["left"], inputs["right"]]))
        model.compile(steps_per_execution=2)
    model.export_for_ipu_serving(tmp_path, output_names="d")
    value = tf.ones([3, 4])
    assert float(tf.reduce_sum(loaded(tmp_path)(left=value * 3, right=value)["d"])) == 24


def test_pre_and_postprocessing_of_models(tmp_path: Path) -> None:
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((4,)), layers.ReLU()])
        model.compile(steps_per_execution=2)
    spec = [tf.TensorSpec([1, 4], tf.float32)]
    function = model.export_for_ipu_serving(
        tmp_path,
        1,
        preprocessing_step=lambda x: x - 2,
        preprocessing_step_signature=spec,
        postprocessing_step=tf.function(lambda y: (y, tf.reduce_sum(y)), input_signature=spec),
    )
    saved = loaded(tmp_path)(tf.constant(X[None]))
    for results in (function(X[None]), [saved["output_0"], saved["output_1"]]):
        assert results[0].numpy().tolist() == [[0, 0, 0, 1]]
        assert float(results[1]) == 1


def test_pipelined_models_are_one_replica(tmp_path: Path) -> None:
    with ipus(2) as two, two.scope():
        model = keras.Sequential([keras.Input((4,)), layers.ReLU(), layers.Dense(2, kernel_initializer="ones")])
        model.set_pipeline_stage_assignment([0, 1])
        model.set_pipelining_options(device_mapping=[0, 1])
        model.compile(steps_per_execution=16)
        function = model.export_for_ipu_serving(tmp_path, 2)
        np.testing.assert_allclose(run(function, np.tile(X, (2, 1)))[0], np.full([2, 2], 6.0))


def sequence(**options: Any) -> keras.Model:
    return keras.Sequential([keras.Input((4,), name="rows", **options), layers.ReLU()])


SPEC = [tf.TensorSpec([1, 4], tf.float32)]
REFUSED: dict[str, tuple[Callable[[], keras.Model], dict[str, Any], type[Exception], str]] = {
    "batch size": (sequence, {}, ValueError, "Every dimension of the input 'rows' must be known"),
    "unbuilt": (
        lambda: keras.Sequential([layers.ReLU()]),
        {"batch_size": 1},
        RuntimeError,
        "must be built before it is exported",
    ),
    "names": (sequence, {"batch_size": 1, "output_names": 4}, TypeError, "output_names must be a string or a list"),
    "number of names": (
        sequence,
        {"batch_size": 1, "output_names": ["a", "b"]},
        ValueError,
        "Length of output_names does not match the number of results returned by the predict function.",
    ),
    "preprocessing": (
        sequence,
        {"batch_size": 2, "preprocessing_step": lambda x: x, "preprocessing_step_signature": SPEC},
        ValueError,
        "Tensor 0 from `preprocessing_step` must have the shape",
    ),
    "preprocessing's signature": (
        sequence,
        {"batch_size": 1, "preprocessing_step": lambda x: x},
        ValueError,
        "`input_signature` deduction from given `preprocessing_step` is not possible",
    ),
    "postprocessing": (
        sequence,
        {"batch_size": 2, "postprocessing_step": lambda x: x, "postprocessing_step_signature": SPEC},
        ValueError,
        "Tensor 0 from `predict_step` must have the shape",
    ),
}


@pytest.mark.parametrize("what", sorted(REFUSED))
def test_models_that_cannot_be_exported(what: str, tmp_path: Path) -> None:
    make, arguments, error, text = REFUSED[what]
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = make()
    with pytest.raises(error, match=text):
        model.export_for_ipu_serving(tmp_path / "new", **arguments)
    assert not (tmp_path / "new").exists()


def test_a_model_of_no_strategy(tmp_path: Path) -> None:
    text = "Provided model was not created inside an IPU strategy, so it does not contain"
    with pytest.raises(ValueError, match=text):
        serving.export_keras(sequence(), tmp_path)


def test_a_directory_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = sequence(batch_size=1)
    with pytest.raises(
        ValueError, match=r"is not empty\. Please specify an empty directory\. Or pass purge_export_dir=True"
    ):
        model.export_for_ipu_serving(tmp_path)
    with pytest.raises(ValueError, match="no `max_length`"):
        model.export_for_ipu_serving(tmp_path, purge_export_dir=True, stop_token_ids=[0])
    assert (tmp_path / "file").exists()  # until there is something to take its place
    model.export_for_ipu_serving(tmp_path, purge_export_dir=True)
    assert not (tmp_path / "file").exists()
