"""Buffers, benchmarks and files of datasets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf import dataset_benchmark, dataset_extractor
from ipu_tf._data import array_files

tf1 = tf.compat.v1
BufferDataset = ipu.data.ops.dataset_ops.BufferDataset


def pairs(count: int) -> tf.data.Dataset:
    """Elements `{"x": [i, i], "y": i}`."""
    return tf.data.Dataset.range(count).map(lambda i: {"x": tf.fill([2], tf.cast(i, tf.float32)), "y": i})


@pytest.mark.parametrize(("count", "size"), [(0, 1), (5, 1), (5, 2), (6, 3), (2, 3)])
def test_buffers(count: int, size: int) -> None:
    buffered = BufferDataset(pairs(count), size)
    assert buffered.element_spec == pairs(count).element_spec
    found = [int(element["y"]) for element in buffered]
    assert found == list(range(count - count % size))


def test_buffers_in_a_graph() -> None:
    with tf.Graph().as_default(), tf1.Session() as session:
        element = tf1.data.make_one_shot_iterator(BufferDataset(pairs(3), tf.constant(2))).get_next()
        assert [session.run(element)["y"] for _ in range(2)] == [0, 1]
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(element)


def measured(dataset: tf.data.Dataset, graph: bool, **options: Any) -> list[dict[str, float]]:
    """The epochs of a benchmark."""
    if not graph:
        text = dataset_benchmark.dataset_benchmark(dataset, 2, 3, **options).numpy()
    else:
        with tf1.Session() as session:
            text = session.run(dataset_benchmark.dataset_benchmark(dataset, 2, 3, **options))
    assert text.shape == (1,)
    epochs: list[dict[str, float]] = json.loads(text[0])["epochs"]
    return epochs


@pytest.mark.parametrize("graph", [False, True])
def test_benchmark(graph: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with tf.Graph().as_default() if graph else tf.init_scope():
        epochs = measured(pairs(6), graph)
    for epoch in epochs:
        assert (epoch["elements_processed"], epoch["total_bytes_processed"]) == (3, 3 * 16)
        assert epoch["elements_per_second"] == pytest.approx(3 / epoch["time_elapsed"])
        assert epoch["bandwidth"] == pytest.approx(48e-9 / epoch["time_elapsed"])
    assert len(epochs) == 2
    assert capsys.readouterr().out.count("elements_processed 3") == 2


def test_a_quiet_benchmark_without_copies(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(measured(pairs(6), False, print_stats=False, do_memcpy=False, apply_debug_options=False)) == 2
    assert capsys.readouterr().out == ""


def test_benchmark_of_an_infeed() -> None:
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(1.0).repeat())
    text = dataset_benchmark.infeed_benchmark(infeed, 1, 4, print_stats=False).numpy()[0]
    assert json.loads(text)["epochs"][0]["elements_processed"] == 4


EMPTY = tf.data.Dataset.from_tensors(np.zeros((4, 0), np.float32)).repeat()
BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "epochs": (
        lambda: dataset_benchmark.dataset_benchmark(pairs(1), 0, 1),
        ValueError,
        "Expected `number_of_epochs` to be at least 1.",
    ),
    "elements": (
        lambda: dataset_benchmark.dataset_benchmark(pairs(1), 1, 0),
        ValueError,
        "Expected `elements_per_epochs` to be at least 1.",
    ),
    "dataset": (
        lambda: dataset_benchmark.dataset_benchmark([1], 1, 1),
        TypeError,
        "Expected `dataset` argument to be of type `tf.data.Dataset`, but got",
    ),
    "infeed": (
        lambda: dataset_benchmark.infeed_benchmark(pairs(1), 1, 1),
        TypeError,
        "Expected `infeed_queue` argument to be of type `ipu.ipu_infeed_queue.IPUInfeedQueue`",
    ),
    "no data": (
        lambda: dataset_benchmark.dataset_benchmark(EMPTY, 1, 1),
        tf.errors.InvalidArgumentError,
        "Detected a tensor in the dataset with a dimension of size 0",
    ),
    "too few": (
        lambda: dataset_benchmark.dataset_benchmark(pairs(3), 2, 2),
        tf.errors.OutOfRangeError,
        "wanted 2 elements in this epoch, got 1",
    ),
    "buffer": (lambda: BufferDataset(pairs(1), 0), ValueError, "Expected `buffer_size` to be at least 1"),
    "extract none": (
        lambda: dataset_extractor.dataset_extractor(pairs(1), 0, "f", "n"),
        ValueError,
        "Expected `num_elements` to be at least 1.",
    ),
    "extract no dataset": (
        lambda: dataset_extractor.dataset_extractor([1], 1, "f", "n"),
        TypeError,
        "Expected `dataset` argument",
    ),
    "extract too many": (
        lambda: dataset_extractor.dataset_extractor(pairs(1), 2, "f", "n"),
        tf.errors.OutOfRangeError,
        "wanted 2 elements, got 1",
    ),
    "names": (
        lambda: dataset_extractor.export_variables([tf.Variable(1.0)], [], "f"),
        ValueError,
        "Expected a name for each variable. Received: 0 names, 1 variables",
    ),
    "metadata": (
        lambda: dataset_extractor.export_variables([], [], "f", metadata="m.json"),
        ipu.emulation.EmulationError,
        "metadata of Poplar executables",
    ),
    "no file": (lambda: dataset_extractor.import_variables([], "/nowhere/x"), FileNotFoundError, "x"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_of_data_tools_raise(name: str) -> None:
    call, error, text = BAD[name]
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("graph", [False, True])
def test_extracting_elements(graph: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "elements.bin")
    if graph:
        with tf.Graph().as_default(), tf1.Session() as session:
            session.run(dataset_extractor.dataset_extractor(pairs(9), 3, file, "feed"))
    else:
        assert dataset_extractor.dataset_extractor(pairs(9), 3, file, "feed") is None
    found = array_files.read_arrays(file)
    assert sorted(found) == ["feed.0", "feed.1"]
    np.testing.assert_array_equal(found["feed.0"], [[0, 0], [1, 1], [2, 2]])
    np.testing.assert_array_equal(found["feed.1"], [0, 1, 2])
    assert "Saved 3 elements" in capsys.readouterr().out


def make_variables(start: float) -> list[tf.Variable]:
    """Two variables, one of a dtype that numpy lacks."""
    return [
        tf.Variable([start, 2.0], name="a/w"),
        tf.Variable(tf.cast([[start]], tf.bfloat16), name="b"),
    ]


def test_variables_go_through_a_file(tmp_path: Path) -> None:
    file, saved, fresh = str(tmp_path / "v.bin"), make_variables(1.5), make_variables(0.0)
    names = dataset_extractor.get_variable_handles(saved)
    assert names == ["a/w", "b"]
    dataset_extractor.export_variables(saved, names, file, print_stats=False)
    dataset_extractor.import_variables(fresh, [file], is_input=False, print_stats=False)
    for old, new in zip(saved, fresh, strict=True):
        np.testing.assert_array_equal(old.numpy(), new.numpy())


def test_variables_of_one_name(tmp_path: Path) -> None:
    file, same = str(tmp_path / "v.bin"), [tf.Variable([1.0]), tf.Variable([2.0])]
    with pytest.raises(ValueError, match="Variables need different names"):
        dataset_extractor.export_variables(same, dataset_extractor.get_variable_handles(same), file)
    dataset_extractor.export_variables(same[:1], ["Variable"], file)
    with pytest.raises(ValueError, match="Variables need different names"):
        dataset_extractor.import_variables(same, file)


def test_variables_of_keras(tmp_path: Path) -> None:
    """Layers give their variables the same names: paths tell them apart."""
    file = str(tmp_path / "v.bin")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, name="a"), keras.layers.Dense(1, name="b")])
    before = model.get_weights()
    dataset_extractor.export_variables(model.variables, dataset_extractor.get_variable_handles(model.variables), file)
    model.set_weights([array + 1 for array in before])
    dataset_extractor.import_variables(model.variables, file)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_variables_in_a_session(tmp_path: Path) -> None:
    file = str(tmp_path / "v.bin")
    with tf.Graph().as_default(), tf1.Session() as session:
        v = tf1.get_variable("v", initializer=3.0, use_resource=True)
        save = dataset_extractor.export_variables([v], dataset_extractor.get_variable_handles([v]), file)
        load = dataset_extractor.import_variables([v], file)
        session.run(v.initializer)
        session.run(save)
        session.run(v.assign(4.0))
        session.run(load)
        assert session.run(v) == 3.0


def test_strict_and_lenient_import(tmp_path: Path) -> None:
    file = str(tmp_path / "v.bin")
    array_files.write_arrays(file, {"a/w": np.array([7, 8], np.float32), "other": np.array(1, np.float32)})
    variables = make_variables(1.0)
    with pytest.raises(ValueError, match=r"Missing: \['b'\]. Not asked for: \['other'\]"):
        dataset_extractor.import_variables(variables, file)
    dataset_extractor.import_variables(variables, file, strict=False)
    np.testing.assert_array_equal(variables[0], [7, 8])
    assert float(variables[1][0, 0]) == 1.0
    array_files.write_arrays(file, {"a/w": np.array([7], np.float32)})
    with pytest.raises(ValueError, match=r"The variable 'a/w' has the shape \(2,\) and dtype float32. Saved is: shape"):
        dataset_extractor.import_variables(variables[:1], file, strict=False)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", a=np.zeros(2))
    with pytest.raises(ValueError, match="was not written by this package"):
        array_files.read_arrays(str(tmp_path / "other.npz"))
