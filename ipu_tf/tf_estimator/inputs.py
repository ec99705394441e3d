"""`tf.estimator.inputs`: input functions over data in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._config.ignored_arguments import record_ignored

InputFn = Callable[[], tf.data.Dataset]


def numpy_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> InputFn:
    """An input function over NumPy arrays.

    It gives a dataset of (features, labels), or of features without `y`. For an `IPUEstimator` the batches have to be
    full: let `batch_size` divide the data.

    Args:
        x: an array, or a dictionary of arrays, of equal first dimensions.
        y: an array or a dictionary of arrays, or None.
        batch_size: examples a batch. The last batch of the data may be smaller; if all are full, they have a fixed
            size.
        num_epochs: how often the data is gone through; None for ever.
        shuffle: whether to shuffle; it has to be said.
        queue_capacity: how many examples are shuffled at a time.
        num_threads: recorded, without effect: tf.data has threads of its own.

    Raises:
        ValueError: if `shuffle` is not a bool, or the arrays are of different lengths.

    Example:
        >>> import numpy as np
        >>> dataset = numpy_input_fn(np.zeros((4, 2)), np.zeros(4), batch_size=2, shuffle=False)()
        >>> [tuple(spec.shape) for spec in dataset.element_spec]
        [(2, 2), (2,)]
    """
    if not isinstance(shuffle, bool):
        raise ValueError(
            "shuffle must be provided and explicitly set as boolean (it is recommended to set it as True for "
            f"training); got {shuffle}"
        )
    record_ignored("numpy_input_fn.num_threads", None if num_threads == 1 else num_threads, "tf.data has its own")
    data = tf.nest.map_structure(np.asarray, x if y is None else (x, y))
    lengths = {len(array) for array in tf.nest.flatten(data)}
    if len(lengths) != 1:
        raise ValueError(f"Length of tensors in x and y is mismatched. Received arrays of lengths {sorted(lengths)}.")
    length = lengths.pop()
    # A batch may have the last examples of an epoch and the first of the next.
    full = length > 0 and (num_epochs is None or length * num_epochs % batch_size == 0)

    def input_fn() -> tf.data.Dataset:
        dataset = tf.data.Dataset.from_tensor_slices(data)
        if shuffle:
            dataset = dataset.shuffle(queue_capacity)
        return dataset.repeat(num_epochs).batch(batch_size, drop_remainder=full)

    return input_fn


def pandas_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> InputFn:
    """An input function over a pandas frame: its columns by name are the features.

    Args:
        x: a `DataFrame`.
        y: a `Series`, or a `DataFrame` of labels, or None.
        batch_size: as for `numpy_input_fn`.
        num_epochs: as for `numpy_input_fn`.
        shuffle: as for `numpy_input_fn`.
        queue_capacity: as for `numpy_input_fn`.
        num_threads: as for `numpy_input_fn`.
        target_column: recorded, without effect: the labels keep their own form.

    Raises:
        ValueError: as `numpy_input_fn`.
    """
    target = None if target_column == "target" else target_column
    record_ignored("pandas_input_fn.target_column", target, "the labels keep their own form")
    features = {str(name): np.asarray(x[name]) for name in x}
    labels = {str(name): np.asarray(y[name]) for name in y} if hasattr(y, "columns") else y
    return numpy_input_fn(features, labels, batch_size, num_epochs, shuffle, queue_capacity, num_threads)
