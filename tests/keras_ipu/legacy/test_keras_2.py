"""Keras 2 behaviour for programs that import Keras 2's modules under the launcher."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from keras_ipu.extensions.data_adapter import IPUDataHandler

ROOT = Path(__file__).resolve().parents[3]


def batches(count: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(count).batch(1, drop_remainder=True)


def epochs(handler: IPUDataHandler) -> list[list[int]]:
    found: list[list[int]] = []
    for _, iterator in handler.enumerate_epochs():
        found.append([])
        for _ in handler.steps():
            with handler.catch_stop_iteration():
                found[-1].append(next(iterator).numpy().item())
    return found


@pytest.fixture(scope="module")
def program_of_keras_2() -> subprocess.CompletedProcess[str]:
    """A program that imports Keras 2's modules, run under the launcher."""
    command = [sys.executable, "-m", "ipu_tf", "tests/helpers/keras_2_program.py"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=400)


@pytest.mark.parametrize(
    "check",
    [
        *(
            "refusals",
            "replicas",
            "names",
            "wordings",
            "metrics",
            "optimizers",
            "optimizer_arguments",
            "optimizer_subclasses",
        ),
        *("arguments", "ops", "batch_norm", "files", "neighbours", "slashes"),
        *("removed_layers", "one_target", "graph_dtypes", "watched"),
    ],
)
def test_a_program_of_keras_2(check: str, program_of_keras_2: subprocess.CompletedProcess[str]) -> None:
    ran = program_of_keras_2
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert f"{check}: as Keras 2 has it" in ran.stdout.splitlines(), ran.stderr[-3000:]


def test_keras_2_where_this_package_is_what_imports_keras() -> None:
    program = "import ipu_tf; ipu_tf.install_aliases(); import keras_ipu, keras; print(keras.layers.Layer().updates)"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "[]", ran.stderr[-3000:]


@pytest.mark.parametrize(
    ("count", "arguments", "wanted"),
    [
        (4, {"steps_per_epoch": 2}, [[0, 1], [2, 3]]),
        (3, {}, [[0, 1, 2], [0, 1, 2]]),
        (4, {"steps_per_epoch": 4}, [[0, 1, 2, 3], [0, 1, 2, 3]]),
        (4, {"steps_per_execution": 2}, [[0, 1], [0, 1]]),
        (7, {"replication_factor": 3}, [[0, 1], [0, 1]]),
    ],
)
def test_which_batches_are_of_which_epoch(count: int, arguments: dict[str, Any], wanted: list[list[int]]) -> None:
    assert epochs(IPUDataHandler(batches(count), epochs=2, **arguments)) == wanted


def test_data_that_ends_early_ends_the_epochs() -> None:
    unknown = batches(2).filter(lambda each: True)
    assert epochs(IPUDataHandler(unknown, epochs=2, steps_per_epoch=3)) == [[0, 1]]


def test_arrays_are_cut_into_batches_of_32_bits() -> None:
    handler = IPUDataHandler(np.arange(4.0), np.arange(4), class_weight={0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}, batch_size=2)
    elements = [tuple(part.numpy().tolist() for part in each) for each in next(handler.enumerate_epochs())[1]]
    assert handler.element_spec[0].dtype == tf.float32
    assert elements == [([0.0, 1.0], [0, 1], [1.0, 2.0]), ([2.0, 3.0], [2, 3], [3.0, 4.0])]
    assert (handler.inferred_steps, handler.steps_per_execution_value) == (2, 1)


REFUSED: list[tuple[str, Callable[[], Any]]] = [
    (
        "at least 12 batches .currently it can only generate 5",
        lambda: IPUDataHandler(batches(5), steps_per_epoch=6, epochs=2),
    ),
    ("contains 3 items, but all 4 replicas", lambda: IPUDataHandler(batches(3), replication_factor=4)),
    ("must be a divisor of the number of batches", lambda: IPUDataHandler(batches(4), steps_per_execution=3)),
    ("has a partial batch", lambda: IPUDataHandler(np.arange(3), batch_size=2)),
    ("Please use `tf.data.Dataset.from_generator", lambda: IPUDataHandler(each for each in "ab")),
    ("wrap your iterator inside a generator", lambda: IPUDataHandler(iter([1]))),
    ("to be a dict with keys", lambda: IPUDataHandler([[0]], [[1]], class_weight={0: 1.0, 2: 1.0})),
    ("with a single output", lambda: IPUDataHandler(np.ones(2), [np.ones(2)] * 2, class_weight={0: 1.0})),
    ("Could not infer the size", lambda: IPUDataHandler(batches(2).filter(lambda each: True)).inferred_steps),
]


@pytest.mark.parametrize(("words", "make"), REFUSED, ids=[words[:24] for words, _ in REFUSED])
def test_data_that_is_refused(words: str, make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_replicas_that_are_told_later() -> None:
    handler = IPUDataHandler(batches(4), steps_per_execution=3, replication_factor=None)
    with pytest.raises(RuntimeError, match="Cannot call inferred_steps before the replication factor is set"):
        _ = handler.inferred_steps
    handler.set_replication_factor(3)
    assert (handler.inferred_steps, handler.steps_per_execution_value) == (1, 1)
