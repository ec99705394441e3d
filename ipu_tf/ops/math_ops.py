"""Serialized matmul and segment sum."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf._arguments.counts import checked_integer
from ipu_tf.emulation import record_ignored

_DIMENSIONS = ("a_columns", "a_rows_b_columns", "b_rows")


def serialized_matmul(
    a: Any,
    b: Any,
    serialization_factor: int,
    serialization_dimension: str,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """The product of `a` and `b`.

    On an IPU it is made piece by piece, to save code memory. Here it is made at once: the arguments are checked, and
    the result is that of `tf.matmul`.

    Args:
        a: `[..., m, k]` after the transposition.
        b: `[..., k, n]` after the transposition.
        serialization_factor: how many pieces; divides the dimension below. Without effect here.
        serialization_dimension: `a_columns` for m, `a_rows_b_columns` for k, `b_rows` for n. Without effect here.
        transpose_a: whether the last two dimensions of `a` are exchanged first.
        transpose_b: whether the last two dimensions of `b` are exchanged first.
        name: of the op.

    Raises:
        ValueError: if an argument is not as described.

    Example:
        >>> serialized_matmul([[1.0, 2.0]], [[3.0], [4.0]], 2, "a_rows_b_columns").numpy().tolist()
        [[11.0]]
    """
    a, b, factor = (
        tf.convert_to_tensor(a),
        tf.convert_to_tensor(b),
        checked_integer("serialization_factor", serialization_factor),
    )
    if factor < 1:
        raise ValueError(f"serialization_factor has to be at least 1, but was {factor}.")
    for label, tensor in (("a", a), ("b", b)):
        if tensor.shape.rank < 2:
            raise ValueError(f"Expected tensor '{label}' to have a minimum rank of 2")
    if serialization_dimension not in _DIMENSIONS:
        raise ValueError(
            f"Invalid serialization_dimension={serialization_dimension}, expected one of: "
            "'a_columns', 'a_rows_b_columns', 'b_rows'."
        )
    m, k = _matrix(a, transpose_a)
    rows_of_b, n = _matrix(b, transpose_b)
    _check_divides(factor, serialization_dimension, (m, k, rows_of_b, n))
    if factor > 1:
        record_ignored("serialized_matmul.serialization_factor", factor)
    return tf.matmul(a, b, transpose_a, transpose_b, name=name or "serialized_matmul")


def _matrix(tensor: tf.Tensor, transposed: bool) -> tuple[int, int]:
    rows, columns = tensor.shape.as_list()[-2:]
    return (columns, rows) if transposed else (rows, columns)


def _check_divides(factor: int, dimension: str, sizes: tuple[int, int, int, int]) -> None:
    m, k, rows_of_b, n = sizes
    if dimension == "a_rows_b_columns" and k != rows_of_b:
        raise ValueError(
            f"Expected the number of columns in 'a' ({k}) to match the number of rows in 'b' ({rows_of_b})."
        )
    size, words = {
        "a_columns": (m, "columns dimension of 'a'"),
        "a_rows_b_columns": (k, "rows dimension of 'a'"),
        "b_rows": (n, "rows dimension of 'b'"),
    }[dimension]
    if size is not None and size % factor:
        raise ValueError(f"Expected 'serialization_factor' ({factor}) to divide the {words} ({size}).")


def segment_sum(data: Any, segment_ids: Any, num_segments: int, name: str | None = None) -> tf.Tensor:
    """Sums the rows of `data` that have the same segment id.

    Args:
        data: `[rows, ...]`, of known shape.
        segment_ids: `[rows]` whole numbers in ascending order. Rows with an id of `num_segments` or more are left out.
        num_segments: rows of the result; those without a segment are zero.
        name: of the op.

    Returns:
        `[num_segments, ...]`, of the dtype of `data`.

    Raises:
        ValueError: if a shape is not as described.

    Example:
        >>> segment_sum([[1, 2], [3, 4], [5, 6]], [0, 0, 2], 3).numpy().tolist()
        [[4, 6], [0, 0], [5, 6]]
    """
    data, segment_ids = tf.convert_to_tensor(data), tf.convert_to_tensor(segment_ids, dtype=tf.int32)
    if not data.shape.is_fully_defined():
        raise ValueError("Shape of data must be fully defined")
    if not segment_ids.shape.is_fully_defined():
        raise ValueError("Shape of segment_ids must be fully defined")
    data_shape, ids_shape = data.shape.with_rank_at_least(1), segment_ids.shape.with_rank(1)
    if int(num_segments) <= 0:
        raise ValueError(f"num_segments must be greater than 0; got {int(num_segments)}")
    if data_shape.as_list()[0] != ids_shape.as_list()[0]:
        raise ValueError(
            f"segment_ids (shape {ids_shape}) must have same length as axis 0 of data (shape {data_shape})"
        )
    return tf.math.unsorted_segment_sum(data, segment_ids, int(num_segments), name=name)
