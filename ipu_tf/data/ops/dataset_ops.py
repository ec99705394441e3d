"""`BufferDataset`: a dataset truncated to a multiple of a buffer size."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf.lowering.tensorflow import tf_private, tf_values


class BufferDataset(tf_private.SameStructureDataset):
    """A dataset that has a multiple of `buffer_size` elements: the last ones, too few to fill a buffer, are left out.

    Args:
        input_dataset: a `tf.data.Dataset` whose elements all have the same shapes.
        buffer_size: how many elements a buffer holds.

    Raises:
        ValueError: if `buffer_size` is below 1.

    Example:
        >>> import tensorflow as tf
        >>> from ipu_tf.data.ops.dataset_ops import BufferDataset
        >>> [int(element) for element in BufferDataset(tf.data.Dataset.range(5), 2)]
        [0, 1, 2, 3]
    """

    def __init__(self, input_dataset: tf.data.Dataset, buffer_size: Any) -> None:
        static = tf.get_static_value(buffer_size)
        if static is not None and int(static) < 1:
            raise ValueError(f"Expected `buffer_size` to be at least 1. Received: {int(static)}.")
        size = tf.cast(buffer_size, tf.int64)
        buffered = input_dataset.batch(size, drop_remainder=True).unbatch()
        super().__init__(input_dataset, tf_values.dataset_variant(buffered))
