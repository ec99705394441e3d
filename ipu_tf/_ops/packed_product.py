"""Products with packed weights, in programs of TensorFlow and of JAX on the device.

    tensors of TensorFlow --> marker `ipu.packed_product` --> rule of the importer --.
    arrays of JAX -------------------------------------------------------------------+--> device's `packed_product`

Operands are checked here, where their error still names the layer that gave them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from ipu_tf.device.packed import packed_product as device
from ipu_tf.device.packed.packed_product import PackedForm
from ipu_tf.lowering.tensorflow.markers import marker

__all__ = ["PackedForm", "packed_product"]
PACKED_PRODUCT = "ipu.packed_product"


def packed_product(x: Any, weights: Any, form: PackedForm, *groups: Any) -> Any:
    """Computes what `ipu_tf.device.packed.packed_product` does; in TensorFlow, without a gradient.

    Args:
        x: `[rows, inner]`, float32, of a known shape; a tensor, or an array of JAX.
        weights: int8, packed as the form says.
        form: how.
        *groups: scale and zero, where there are groups.

    Raises:
        TypeError: for other dtypes.
        ValueError: for shapes that the form does not have.

    Example:
        >>> import jax.numpy as jnp
        >>> x, weights = jnp.ones((1, 2)), jnp.array([[16], [-1]], jnp.int8)  # 4 bits: 0 and 1; -1 and -1
        >>> packed_product(x, weights, PackedForm(inner=2, columns=2, bits=4)).tolist()
        [[-1.0, 0.0]]
    """
    _check((x, weights, *groups), form)
    if not tf.is_tensor(x):
        return device.packed_product(x, weights, form, *groups)
    spec = tf.TensorSpec([x.shape[0], form.columns], tf.int32 if form.whole else tf.float32)
    [result] = marker(PACKED_PRODUCT, [x, weights, *groups], [spec], **dataclasses.asdict(form))
    return result


def _check(operands: tuple[Any, ...], form: PackedForm) -> None:
    """Checks dtypes and shapes: a kernel takes bare buffers."""
    lines, last = (form.columns, form.inner) if form.turned else (form.inner, form.columns)
    grouped = (form.columns, form.groups) if form.turned else (form.groups, form.columns)
    wanted = [("float32", (operands[0].shape[0], form.inner)), ("int8", (lines, -(-last * form.bits // 8)))]
    wanted += [("float32", grouped), ("int8", grouped)] if form.block else []
    if len(operands) != len(wanted):
        raise ValueError(f"{form} takes {len(wanted)} operands. Received: {len(operands)}.")
    for operand, (dtype, shape) in zip(operands, wanted, strict=True):
        name = getattr(operand.dtype, "name", operand.dtype)  # Keras's variables have the name itself
        if name != dtype:
            raise TypeError(f"{form} takes operands of {[each for each, _ in wanted]}. Received: {name}.")
        if tuple(operand.shape) != shape:
            raise ValueError(f"{form} takes an operand of shape {shape}. Received: {tuple(operand.shape)}.")
