"""Arguments that are accepted without effect are listed: each that is given, and none that is left out."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.emulation import clear_session, ignored_arguments
from ipu_tf.poplar.ops import gen_pop_datastream_ops as raw_ops
from ipu_tf.tf_estimator.inputs import numpy_input_fn, pandas_input_fn
from tests.helpers.some_ipus import ipus

IMAGE = np.ones((2, 3, 4), np.float32)
TABLE: dict[str, Any] = {"embedding_id": "table", "embedding_shape": [5, 2]}


def in_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, called while a graph of TensorFlow 1 is built."""

    def called(**options: Any) -> None:
        with tf.Graph().as_default():
            function(**options)

    return called


def run(**options: Any) -> None:
    with ipus(1) as strategy:
        assert float(strategy.run(tf.function(lambda x: x + 1.0), [tf.constant(1.0)], **options)) == 2.0


def export(folder: pathlib.Path, **options: Any) -> None:
    ipu.utils.export_dataset_to_file(tf.data.Dataset.from_tensors(1.0), str(folder / "data"), 1, **options)


def lookup(**options: Any) -> None:
    raw_ops.ipu_device_embedding_lookup(tf.constant([1, 2]), **TABLE, dtype=tf.float32, **options)


def update(**options: Any) -> None:
    raw_ops.ipu_device_embedding_update_add(tf.zeros([1]), tf.zeros([1, 2]), tf.constant([1]), **TABLE, **options)


CALLS: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "loops.use_while_v1": (in_graph(lambda **given: ipu.loops.repeat(2, lambda x: x, [1.0], **given)), True, False),
    "softmax.stable": (lambda **given: ipu.ops.nn_ops.softmax([1.0], **given), False, True),
    "assume_equal_across_replicas.inplace": (
        lambda **given: ipu.ops.cross_replica_ops.assume_equal_across_replicas(tf.constant(1.0), **given),
        False,
        True,
    ),
    "IPUStrategyV1.run.options": (run, None, tf.distribute.RunOptions()),
    "export_dataset_to_file.apply_debug_options": (export, True, False),
    **{
        f"{kind}_norm.training": (in_graph(lambda make=make, **given: make(IMAGE, **given)), True, False)
        for kind, make in (
            ("group", ipu.ops.normalization_ops.group_norm),
            ("layer", ipu.ops.normalization_ops.layer_norm),
            ("instance", ipu.ops.normalization_ops.instance_norm),
        )
    },
    "numpy_input_fn.num_threads": (lambda **given: numpy_input_fn(IMAGE, shuffle=False, **given), 1, 4),
    "pandas_input_fn.target_column": (
        lambda **given: pandas_input_fn({"x": IMAGE}, IMAGE, shuffle=False, **given),
        "target",
        "y",
    ),
    "ipu_device_embedding_lookup.partition_strategy": (in_graph(lookup), "TOKEN", "ENCODING"),
    "ipu_device_embedding_update_add.partition_strategy": (in_graph(update), "TOKEN", "ENCODING"),
}
"""By the name that is listed: what is called, the argument's default, and another value."""


@pytest.mark.parametrize("name", CALLS)
def test_what_has_no_effect_is_recorded(name: str, tmp_path: pathlib.Path) -> None:
    call, default, other = CALLS[name]
    argument, folder = name.rpartition(".")[2], {"folder": tmp_path} if call is export else {}
    clear_session()
    call(**folder)
    call(**folder, **{argument: default})
    assert name not in {item.name for item in ignored_arguments()}
    call(**folder, **{argument: other})
    assert {item.name: item.value for item in ignored_arguments()}[name] == repr(other)
