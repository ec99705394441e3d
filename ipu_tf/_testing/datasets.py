"""Data sets of increasing numbers for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

_IMAGE = (1, 32, 32, 4)
_LABEL = (1, 8)


def create_multi_increasing_dataset(
    value: int,
    shapes: Sequence[Sequence[int]] | None = None,
    dtypes: Sequence[Any] | None = None,
    repeat: bool = True,
) -> tf.data.Dataset:
    """Elements 0, 1, ..., `value` - 1, each a tuple of tensors filled with its number.

    Args:
        value: how many elements there are before they start again.
        shapes: shape of each tensor of an element; by default [1, 32, 32, 4] and [1, 8].
        dtypes: dtype of each tensor; by default float32 for two tensors.
        repeat: whether the elements repeat without end.

    Raises:
        ValueError: if there are not as many dtypes as shapes.

    Example:
        >>> from ipu_tf.test_utils import create_multi_increasing_dataset
        >>> dataset = create_multi_increasing_dataset(3, shapes=[[2]], dtypes=["int32"], repeat=False)
        >>> [element[0].numpy().tolist() for element in dataset]
        [[0, 0], [1, 1], [2, 2]]
    """
    chosen = [list(shape) for shape in shapes or (_IMAGE, _LABEL)]
    kinds = [tf.as_dtype(dtype) for dtype in dtypes or (np.float32, np.float32)]
    if len(chosen) != len(kinds):
        raise ValueError(f"Give one dtype for each shape. Received {len(chosen)} shapes and {len(kinds)} dtypes.")

    def element(number: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(tf.fill(shape, tf.cast(number, dtype)) for shape, dtype in zip(chosen, kinds, strict=True))

    dataset = tf.data.Dataset.range(value).map(element)
    return dataset.repeat() if repeat else dataset


def create_dual_increasing_dataset(
    value: int,
    data_shape: Sequence[int] | None = None,
    label_shape: Sequence[int] | None = None,
    dtype: Any = np.float32,
    repeat: bool = True,
) -> tf.data.Dataset:
    """As `create_multi_increasing_dataset`, with a tensor of data and one of labels in each element.

    Args:
        value: how many elements there are before they start again.
        data_shape: by default [1, 32, 32, 4].
        label_shape: by default [1, 8].
        dtype: of both.
        repeat: whether the elements repeat without end.
    """
    shapes = [data_shape or _IMAGE, label_shape or _LABEL]
    return create_multi_increasing_dataset(value, shapes, [dtype, dtype], repeat)


def create_single_increasing_dataset(
    value: int, shape: Sequence[int] | None = None, dtype: Any = np.float32, repeat: bool = True
) -> tf.data.Dataset:
    """As `create_multi_increasing_dataset`, with one tensor in each element (still a tuple).

    Args:
        value: how many elements there are before they start again.
        shape: by default [1, 32, 32, 4]; an empty one gives scalars.
        dtype: of the tensor.
        repeat: whether the elements repeat without end.
    """
    return create_multi_increasing_dataset(value, [_IMAGE if shape is None else shape], [dtype], repeat)
