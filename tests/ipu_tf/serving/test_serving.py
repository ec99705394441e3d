"""Exports for serving: SavedModels that stock TensorFlow runs anywhere, and functions that run on the device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf import serving
from ipu_tf.device.files.executable_reading import read
from ipu_tf.ops.cross_replica_ops import cross_replica_sum
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]
pytestmark = pytest.mark.usefixtures("strategy")

F4 = tf.TensorSpec([4], tf.float32)
X = np.arange(4, dtype=np.float32)
#: Runs SavedModels in stock TensorFlow, on the inputs 0, 1, 2, ... of each.
STOCK = """
import json, sys
import tensorflow as tf
results = []
for path in sys.argv[1:]:
    function = tf.saved_model.load(path).signatures["serving_default"]
    specs = function.structured_input_signature[1]
    inputs = {name: tf.reshape(tf.cast(tf.range(spec.shape.num_elements()), spec.dtype), spec.shape)
              for name, spec in specs.items()}
    results.append({name: value.numpy().tolist() for name, value in function(**inputs).items()})
print("RESULT", json.dumps([results, sorted(m for m in sys.modules if m in ("keras_ipu", "ipu_tf"))]))
"""


def loaded(path: Path) -> Any:
    """The function of a SavedModel, loaded here."""
    return tf.saved_model.load(str(path)).signatures["serving_default"]


def run(function: Any, *args: Any) -> Any:
    """Its results by `IPUStrategy.run`."""
    return ipu.ipu_strategy.IPUStrategy().run(function, args=[tf.constant(value) for value in args])


def two_inputs() -> Any:
    """A step of two inputs and two outputs with a variable."""
    w = tf.Variable(3.0)

    def step(x1: tf.Tensor, x2: tf.Tensor) -> Any:
        return x1 * x2 + w, x1 - x2

    return step


def test_the_function_and_the_saved_model_agree(tmp_path: Path) -> None:
    specs = (tf.TensorSpec([4], tf.float32), tf.TensorSpec([], tf.float32))
    function = serving.export_single_step(two_inputs(), tmp_path / "a", 3, specs, output_names=["p", "q"])
    with device_work() as work:
        for number in range(4):
            result = function(X, np.float32(number))
            np.testing.assert_allclose(result["p"], X * number + 3)
            np.testing.assert_allclose(result["q"], X - number)
    assert work.counts.executions == 4
    saved = loaded(tmp_path / "a")
    assert sorted(saved.structured_input_signature[1]) == ["x1", "x2"]
    np.testing.assert_allclose(saved(x1=tf.constant(X), x2=tf.constant(2.0))["p"], X * 2 + 3)
    with device_work() as work:
        on_device = ipu.ipu_strategy.IPUStrategy().run(saved, kwargs={"x1": X, "x2": np.float32(2)})
    np.testing.assert_allclose(on_device["q"], X - 2)
    assert work.counts.executions == 1


def test_stock_tensorflow_runs_what_was_exported(tmp_path: Path) -> None:
    """In a process without this project: plain steps, pipelines, Keras models, and ops that only the device knows."""
    w = tf.Variable([1.0, 2.0, 3.0, 4.0])
    largest = lambda x, unused: tf.math.top_k(cross_replica_sum(x * w), 2)[1]  # noqa: E731
    serving.export_single_step(lambda x: x * w, tmp_path / "plain", 2, [F4], output_names="y")
    serving.export_single_step(largest, tmp_path / "largest", 2, [F4, F4], output_names="y")
    serving.export_single_step(lambda x: cross_replica_sum(x * w) + 1, tmp_path / "marker", 2, [F4], output_names="y")
    serving.export_pipeline(
        [lambda x: x + w, lambda x: (x * 2, x)],
        tmp_path / "pipeline",
        2,
        device_mapping=[0, 0],
        predict_step_signature=[F4],
    )
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, kernel_initializer="ones")])
        model.compile(steps_per_execution=4)
    model.export_for_ipu_serving(tmp_path / "keras", batch_size=1)
    paths = [str(tmp_path / name) for name in ("plain", "marker", "pipeline", "keras", "largest")]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", STOCK, *paths], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results, modules = json.loads(done.stdout.split("RESULT ")[1])
    assert results == [
        {"y": [0.0, 2.0, 6.0, 12.0]},
        {"y": [1.0, 3.0, 7.0, 13.0]},
        {"output_0": [2.0, 6.0, 10.0, 14.0], "output_1": [1.0, 3.0, 5.0, 7.0]},
        {"output_0": [[6.0, 6.0]]},
        {"y": [3, 2]},
    ]
    assert modules == []


def test_the_device_program_lies_beside_it(tmp_path: Path) -> None:
    serving.export_single_step(lambda x: x * 2, tmp_path, 5, [F4])
    [asset] = (tmp_path / "assets").iterdir()
    signature = read(asset).signature
    assert (len(signature.inputs), len(signature.streamed_inputs), len(signature.streamed_outputs)) == (0, 1, 1)


def test_what_is_exported_calls_nothing_of_this_machines_own(tmp_path: Path) -> None:
    """Convolutions call oneDNN here, which no file can hold."""
    images = np.random.default_rng(0).normal(size=(8, 16, 16, 16)).astype(np.float32)
    kernel = tf.Variable(tf.random.stateless_normal([3, 3, 16, 32], (1, 2)))

    def step(x: tf.Tensor) -> tf.Tensor:
        return cross_replica_sum(tf.nn.conv2d(x, kernel, 1, "SAME"))

    ran = run(tf.function(step), images).numpy()
    function = serving.export_single_step(step, tmp_path, 2, [tf.TensorSpec(images.shape, tf.float32)])
    [saved] = loaded(tmp_path)(x=tf.constant(images)).values()
    for result in (saved, run(function, images)[0]):
        np.testing.assert_allclose(result, ran, rtol=1e-4, atol=1e-4)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"__onednn" in path.read_bytes()]


def test_pre_and_postprocessing_run_on_the_host(tmp_path: Path) -> None:
    words = tf.function(
        lambda text: tf.strings.to_number(text) + 1, input_signature=[tf.TensorSpec([4], tf.string, "text")]
    )
    said = tf.function(lambda y: tf.strings.as_string(tf.cast(y, tf.int32)), input_signature=[F4])
    function = serving.export_single_step(
        lambda x: x * 10, tmp_path, 5, [F4], preprocessing_step=words, postprocessing_step=said
    )
    for result in (function(["0", "1", "2", "3"]), run(function, ["0", "1", "2", "3"])):
        assert result[0].numpy().tolist() == [b"10", b"20", b"30", b"40"]
    [result] = loaded(tmp_path)(text=tf.constant(["5", "6", "7", "8"])).values()
    assert result.numpy().tolist() == [b"60", b"70", b"80", b"90"]


def test_steps_are_converted_by_autograph(tmp_path: Path) -> None:
    def step(x: tf.Tensor) -> tf.Tensor:
        if tf.reduce_sum(x) > 0:
            x = -x
        return x

    function = serving.export_single_step(step, tmp_path, 5, [F4])
    assert function(X)[0].numpy().tolist() == (-X).tolist()
    assert function(-X)[0].numpy().tolist() == (-X).tolist()


def test_variables_are_frozen(tmp_path: Path) -> None:
    w = tf.Variable(2.0)
    function = serving.export_single_step(lambda x: x * w, tmp_path, 5, [F4])
    w.assign(5.0)
    assert function(X)[0].numpy().tolist() == (2 * X).tolist()


def test_signatures_from_a_dataset(tmp_path: Path) -> None:
    dataset = tf.data.Dataset.from_tensors((X, np.float32(0)))
    function = serving.export_single_step(two_inputs(), tmp_path / "a", 3, input_dataset=dataset)
    np.testing.assert_allclose(function(X, np.float32(2))[0], 2 * X + 3)
    before = serving.export_single_step(
        tf.function(lambda x: x + 1, input_signature=[F4]),
        tmp_path / "b",
        3,
        input_dataset=dataset,
        preprocessing_step=lambda x, y: x * y,
    )
    np.testing.assert_allclose(before(X, np.float32(2))[0], 2 * X + 1)


def test_pipelines_with_inputs_that_stay(tmp_path: Path) -> None:
    specs = (tf.TensorSpec([], tf.float32), F4)
    first = tf.function(lambda scale, x: scale * x, input_signature=specs)
    function = serving.export_pipeline(
        [first, lambda x: (x + 2, x * 3)], tmp_path, 4, inputs=[np.float32(42)], device_mapping=[0, 0]
    )
    results = function(X)
    np.testing.assert_allclose(results[0], 42 * X + 2)
    np.testing.assert_allclose(results[1], 42 * X * 3)


def test_a_directory_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = f'Directory "{tmp_path}" is not empty. Please specify an empty directory. Or pass purge_export_dir=True.'
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((4,), batch_size=1), keras.layers.ReLU()])
    for export in (
        lambda **more: serving.export_single_step(lambda x: x, tmp_path, 2, [F4], **more),
        lambda **more: serving.export_pipeline([lambda x: x] * 2, tmp_path, 2, predict_step_signature=[F4], **more),
        lambda **more: serving.export_keras(model, tmp_path, **more),
    ):
        with pytest.raises(ValueError) as caught:
            export()
        assert str(caught.value) == text
    serving.export_single_step(lambda x: x, tmp_path, 2, [F4], purge_export_dir=True)
    assert not (tmp_path / "file").exists()
    wrongs: list[dict[str, Any]] = [{"output_names": ["a", "b"]}, {"postprocessing_step": lambda x, y: x}]
    for wrong in wrongs:  # found while it is traced
        with pytest.raises((ValueError, TypeError)):
            serving.export_single_step(lambda x: x, tmp_path, 2, [F4], purge_export_dir=True, **wrong)
        assert (tmp_path / "saved_model.pb").exists()


PLAIN, TOLD = (lambda x: x), tf.function(lambda x: x, input_signature=[F4])
DATASET = tf.data.Dataset.from_tensors(X)
BOTH = "cannot be provided. Please pass only one of them."


@pytest.mark.parametrize(
    ("step", "arguments", "kind", "text"),
    [
        (PLAIN, {}, ValueError, "`input_signature` deduction from given `predict_step` is not possible"),
        (tf.function(PLAIN), {}, ValueError, "The tf.function `predict_step` has no `input_signature`"),
        (
            PLAIN,
            {"predict_step_signature": [F4], "input_dataset": DATASET},
            ValueError,
            f"Both `predict_step_signature` and `input_dataset` {BOTH}",
        ),
        (
            TOLD,
            {"preprocessing_step": PLAIN, "preprocessing_step_signature": [F4], "input_dataset": DATASET},
            ValueError,
            f"Both `preprocessing_step_signature` and `input_dataset` {BOTH}",
        ),
        (
            TOLD,
            {"preprocessing_step": PLAIN},
            ValueError,
            "`input_signature` deduction from given `preprocessing_step` is not possible",
        ),
        (
            PLAIN,
            {"preprocessing_step": PLAIN, "input_dataset": DATASET},
            ValueError,
            "`input_signature` deduction from given `predict_step` is not possible",
        ),
        (
            TOLD,
            {"postprocessing_step": PLAIN},
            ValueError,
            "`input_signature` deduction from given `postprocessing_step` is not possible",
        ),
        (TOLD, {"input_dataset": [1]}, TypeError, "`input_dataset` must be a tf.data.Dataset"),
        (PLAIN, {"predict_step_signature": F4}, TypeError, "`predict_step_signature` must be a tuple or list"),
        (PLAIN, {"predict_step_signature": []}, ValueError, "`predict_step_signature` must be not empty"),
        (PLAIN, {"predict_step_signature": [4]}, TypeError, r"`predict_step_signature\[0\]` must be a tf.TensorSpec"),
        (PLAIN, {"predict_step_signature": [F4, F4]}, ValueError, "must have a spec for each of its arguments"),
        (TOLD, {"output_names": 4}, TypeError, "output_names must be a string or a list of strings"),
        (TOLD, {"output_names": [4]}, TypeError, r"must be a string or a list of strings. Received: \[4\]"),
        (lambda x: (x, x), {"predict_step_signature": [F4], "output_names": ["y", "y"]}, ValueError, "must differ"),
        (
            PLAIN,
            {"input_dataset": tf.data.Dataset.from_tensors({"x": X})},
            TypeError,
            r"tf.TensorSpec for each of its arguments \['x'\]. Received: elements of `input_dataset` of .*dataset.map",
        ),
        (PLAIN, {"input_dataset": tf.data.Dataset.from_tensors(((X, X),))}, TypeError, "dense tensors in a tuple"),
        (tf.function(PLAIN, input_signature=[{"x": F4}]), {}, TypeError, "Received: a signature of"),
        (
            TOLD,
            {"output_names": ["a", "b"]},
            ValueError,
            "Length of output_names does not match the number of results returned by the predict function.",
        ),
        (
            TOLD,
            {"preprocessing_step": lambda x: (x, x), "preprocessing_step_signature": [F4]},
            ValueError,
            "`preprocessing_step` must give as many tensors as `predict_step` takes: 1",
        ),
        (
            TOLD,
            {"preprocessing_step": lambda x: tf.cast(x, tf.int32), "preprocessing_step_signature": [F4]},
            ValueError,
            "Tensor 0 from `preprocessing_step` must have the shape",
        ),
        (
            TOLD,
            {"postprocessing_step": PLAIN, "postprocessing_step_signature": [tf.TensorSpec([5], tf.float32)]},
            ValueError,
            "Tensor 0 from `predict_step` must have the shape",
        ),
    ],
)
def test_what_cannot_be_exported(step: Any, arguments: Any, kind: type[Exception], text: str, tmp_path: Path) -> None:
    with pytest.raises(kind, match=text):
        serving.export_single_step(step, tmp_path / "new", 2, **arguments)
    assert not (tmp_path / "new").exists()
