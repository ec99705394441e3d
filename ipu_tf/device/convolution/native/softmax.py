"""Softmax over the last axis, by the native kernel: one pass over each row, where XLA makes five over the array."""

from __future__ import annotations

import jax
import numpy as np

from ipu_tf.device.convolution.native import library

#: Elements of a part of a call, about, and the most parts: results do not depend on them.
PART, MOST_PARTS = 2**14, 16


def softmax(x: jax.Array, scale: float = 1.0, level: int | None = None) -> jax.Array:
    """Computes `exp(scale * x)` over its sum along the last axis.

    Args:
        x: `[..., columns]`, float32, with one element at least.
        scale: x is multiplied with it beforehand.
        level: the most capable instruction set to use, an index of `library.LEVELS`; by default any.

    Returns:
        float32, of x's shape. It depends neither on the instruction set nor on the number of cores.

    Raises:
        RuntimeError: if there is no native library.

    Example:
        >>> softmax(jax.numpy.array([[0.0, 0.0], [0.0, -200.0]])).tolist()
        [[0.5, 0.5], [1.0, 0.0]]
    """
    native, columns = library.needed(), x.shape[-1]
    rows = x.size // columns
    parts = max(1, min(MOST_PARTS, x.size // PART, rows))
    bits = int(np.float32(scale).view(np.uint32))
    words = np.array([library.level_or_best(level), rows, columns, bits, parts], np.int64)
    result = jax.ShapeDtypeStruct(x.shape, np.float32)
    computed: jax.Array = jax.ffi.ffi_call(native.target(library.SOFTMAX), result)(x, shapes=words)
    return computed
