"""Sequence slices: copies runs of rows between tensors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def sequence_slice(
    dst: Any, src: Any, num_elems: Any, src_offsets: Any, dst_offsets: Any, zero_unused: bool
) -> tf.Tensor:
    """Copies runs of rows of `src` into `dst`: `num_elems[i]` rows from `src_offsets[i]` to `dst_offsets[i]`.

    Where runs overlap in `dst`, the last one stays. Gradients flow to `src` and, for the rows that are kept, to `dst`.

    Args:
        dst: `[rows, ...]`.
        src: `[rows of src, ...]`, of the same inner shape.
        num_elems: `[n]` whole numbers, a list or a tensor.
        src_offsets: `[n]` whole numbers.
        dst_offsets: `[n]` whole numbers.
        zero_unused: whether rows of `dst` that nothing is copied to become zero; otherwise they stay.

    Returns:
        The new `dst`.

    Raises:
        ValueError: if the three lists are empty or differ in length, or the inner shapes differ.

    Example:
        >>> sequence_slice([[0], [0], [0]], [[1], [2], [3]], [2], [1], [0], False).numpy().tolist()
        [[2], [3], [0]]
    """
    dst, src, num_elems, src_offsets, dst_offsets = _tensors(dst, src, num_elems, src_offsets, dst_offsets)
    if not _match(num_elems, src_offsets, dst_offsets):
        raise ValueError("num_elems, src_offsets and dst_offsets must have matching, nonzero shapes of rank 1.")
    _check_inner(dst, src)
    return _copied(dst, src, num_elems, src_offsets, dst_offsets, zero_unused)


def sequence_slice_unpack(src: Any, num_elems: Any, src_offsets: Any, total_elements: int) -> tf.Tensor:
    """Collects runs of rows of `src`, one behind the other: `num_elems[i]` rows from `src_offsets[i]`.

    Args:
        src: `[rows, ...]`.
        num_elems: `[n]` whole numbers.
        src_offsets: `[n]` whole numbers.
        total_elements: rows of the result; those after the last run are zero.

    Returns:
        `[total_elements, ...]`.

    Raises:
        ValueError: if the two lists are empty or differ in length.

    Example:
        >>> sequence_slice_unpack([[1], [2], [3]], [1, 2], [2, 0], 3).numpy().tolist()
        [[3], [1], [2]]
    """
    src, num_elems, src_offsets = _tensors(src, num_elems, src_offsets)
    if not _match(num_elems, src_offsets):
        raise ValueError("num_elems and src_offsets must have matching, nonzero shapes of rank 1.")
    dst = tf.zeros([total_elements, *src.shape.as_list()[1:]], src.dtype)
    return _copied(dst, src, num_elems, src_offsets, _starts(num_elems), True)


def sequence_slice_pack(dst: Any, src: Any, num_elems: Any, dst_offsets: Any, zero_unused: bool) -> tf.Tensor:
    """Lays runs of rows that follow each other in `src` into `dst`: the opposite of `sequence_slice_unpack`.

    Args:
        dst: `[rows, ...]`.
        src: `[rows of src, ...]`, of the same inner shape.
        num_elems: `[n]` whole numbers.
        dst_offsets: `[n]` whole numbers.
        zero_unused: as for `sequence_slice`.

    Returns:
        The new `dst`.

    Raises:
        ValueError: if the two lists are empty or differ in length, or the inner shapes differ.

    Example:
        >>> sequence_slice_pack([[0], [0], [0]], [[3], [1], [2]], [1, 2], [2, 0], False).numpy().tolist()
        [[1], [2], [3]]
    """
    dst, src, num_elems, dst_offsets = _tensors(dst, src, num_elems, dst_offsets)
    if not _match(num_elems, dst_offsets):
        raise ValueError("num_elems and dst_offsets must have matching, nonzero shapes of rank 1.")
    _check_inner(dst, src)
    return _copied(dst, src, num_elems, _starts(num_elems), dst_offsets, zero_unused)


def _tensors(*values: Any) -> list[tf.Tensor]:
    return [tf.convert_to_tensor(value) for value in values]


def _match(*lists: tf.Tensor) -> bool:
    lengths = {values.shape.as_list()[0] if values.shape.rank == 1 else None for values in lists}
    return len(lengths) == 1 and not lengths & {0, None}


def _check_inner(dst: tf.Tensor, src: tf.Tensor) -> None:
    if src.shape[1:] != dst.shape[1:]:
        raise ValueError("src and dst inner shapes must match.")


def _starts(num_elems: tf.Tensor) -> tf.Tensor:
    return tf.cumsum(num_elems, exclusive=True)


def _copied(
    dst: tf.Tensor,
    src: tf.Tensor,
    num_elems: tf.Tensor,
    src_offsets: tf.Tensor,
    dst_offsets: tf.Tensor,
    zero_unused: bool,
) -> tf.Tensor:
    """Every row of the result looks for the run it lies in, and from there for its row of `src`."""
    counts, sources, targets = (tf.cast(values, tf.int32) for values in (num_elems, src_offsets, dst_offsets))
    row = tf.range(tf.shape(dst)[0])[:, None]
    inside = (row >= targets) & (row < targets + counts)
    run = tf.reduce_max(tf.where(inside, tf.range(tf.size(counts)), -1), axis=1)
    used = tf.reshape(run >= 0, [-1] + [1] * (src.shape.rank - 1))
    source_row = row[:, 0] + tf.gather(sources - targets, tf.maximum(run, 0))
    # Reshaped, since the gradient of a gather would not be a plain tensor, which some optimizers ask for.
    rows = tf.reshape(src, tf.shape(src))
    copied = tf.gather(rows, tf.clip_by_value(source_row, 0, tf.shape(src)[0] - 1))
    return tf.where(used, copied, tf.zeros_like(dst) if zero_unused else dst)
