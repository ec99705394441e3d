"""Iterates over a dataset in a Python function, eagerly or as a graph op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf.lowering.tensorflow import tf_values
from ipu_tf.lowering.tensorflow.dataset_source import GraphDataset, eager_elements
from ipu_tf.lowering.tensorflow.host_op import HostOp, host_op

Elements = Iterator[tuple[np.ndarray, ...]]


def check_dataset(dataset: Any) -> None:
    """Checks that something is a dataset.

    Raises:
        TypeError: if it is not.
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(f"Expected `dataset` argument to be of type `tf.data.Dataset`, but got {dataset} instead.")


def read_dataset(
    dataset: tf.data.Dataset,
    function: Callable[[Elements], Sequence[np.ndarray]],
    outputs: Sequence[tf.TensorSpec],
    name: str,
) -> HostOp | list[np.ndarray]:
    """Calls a function with a dataset's elements, from the start.

    Args:
        dataset: the dataset.
        function: takes the elements, each a tuple of arrays, and gives one array an entry of `outputs`.
        outputs: what it gives.
        name: for the op.

    Returns:
        What the function gave, in eager mode; else the op that calls it.
    """
    if tf_values.executing_eagerly():
        return list(function(eager_elements(dataset)()))
    source = GraphDataset(dataset)
    return host_op(lambda *values: function(source.open(*values)()), source.inputs, outputs, name)
