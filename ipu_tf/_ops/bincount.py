"""`DenseBincount` with a length that is known when the program is made, as XLA wants it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def dense_bincount(
    input: Any,
    size: Any,
    weights: Any,
    binary_output: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Counts values as `tf.raw_ops.DenseBincount` does; the arguments are its.

    Args:
        input: whole numbers, of shape (values) or (batch, values).
        size: length of the result: a constant, or as `tf.math.bincount` computes it.
        weights: what each value counts for, of the shape of `input`; empty for 1.
        binary_output: whether to say only which values occur.
        name: of the op.

    Returns:
        Counts of shape (size) or (batch, size), of the dtype of `weights`.

    Raises:
        ValueError: if the length depends on the values alone.
        tf.errors.InvalidArgumentError: when the program runs, for a value below 0; and for one that is not below
            `minlength` if only that is given.
    """
    input = tf.convert_to_tensor(input)
    size = tf.convert_to_tensor(size, input.dtype)
    least, most = _bounds(size)
    length = most if most is not None and least >= most else least
    if length == 0 and most != 0:
        raise ValueError(
            "A program on the device needs to know how many bins `tf.math.bincount` fills: give it `minlength`, which "
            "all values are below, or `minlength` and `maxlength`, both the same. Received: neither."
        )
    if not input.dtype.is_unsigned:
        tf.debugging.assert_non_negative(input, "Input arr must be non-negative!")
    if length != most:
        message = f"`bincount` on the device fills the {length} bins that `minlength` says: a value is not below it."
        tf.debugging.assert_less(input, tf.cast(length, input.dtype), message)
    return tf.raw_ops.DenseBincount(
        input=input, size=tf.constant(length, input.dtype), weights=weights, binary_output=binary_output, name=name
    )


def _bounds(size: tf.Tensor) -> tuple[int, int | None]:
    """The least and the greatest length that a program may find; None if there is no greatest."""
    known = tf.get_static_value(size)
    if known is not None:
        return int(known), int(known)
    operands = [_bounds(operand) for operand in size.op.inputs] if size.op.type in ("Minimum", "Maximum") else []
    mosts = [most for _, most in operands]
    if size.op.type == "Minimum":
        return min(least for least, _ in operands), min((most for most in mosts if most is not None), default=None)
    if size.op.type == "Maximum":
        return max(least for least, _ in operands), None if None in mosts else max(most for most in mosts if most)
    return 0, None
