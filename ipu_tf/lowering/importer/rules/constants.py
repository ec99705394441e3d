"""Rules for constants and iota; values stay NumPy arrays, which other rules can read while importing."""

from __future__ import annotations

import re

import jax
import numpy as np
from jax import lax

from ipu_tf.lowering.importer.rules.registry import Importer, rule
from ipu_tf.lowering.stablehlo.op import Op

_FEW = 64
"""Equal elements beyond this many are broadcast by the program, lest it carry them all."""
_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


@rule("stablehlo.constant")
def _constant(importer: Importer, op: Op) -> np.ndarray | jax.Array:
    values = constant_array(op)
    if values.size > _FEW and not any(values.strides):
        return lax.broadcast(values[(0,) * values.ndim], values.shape)
    return values


def constant_array(op: Op) -> np.ndarray:
    """Returns the elements of a `stablehlo.constant` of any type, with strides of 0 where all are the same."""
    dtype = op.result.dtype
    return _from_buffer(op) if dtype.isbuiltin == 1 and dtype.kind != "c" else _from_text(op)


def _from_buffer(op: Op) -> np.ndarray:
    """Reads a constant's elements from jaxlib's buffer, with strides of 0 for splats."""
    return np.asarray(op.attribute("value"))


@rule("stablehlo.iota", "stablehlo.dynamic_iota")
def _iota(importer: Importer, op: Op, *shape: jax.Array) -> jax.Array:
    return lax.broadcasted_iota(op.result.dtype, op.result.shape, op.integer("iota_dimension"))


@rule("stablehlo.partition_id")
def _partition_id(importer: Importer, op: Op) -> np.ndarray:
    return np.zeros((), np.uint32)


def _from_text(op: Op) -> np.ndarray:
    """Parses a constant of a type without jaxlib buffer: bfloat16, 8-bit floats, 4-bit integers, complex.

    MLIR prints `dense<[1.5, 0x7FC0]>`, hexadecimal for what decimals cannot say, `dense<"0x3FC0...">` for the
    bytes of a long array, and a single element where all are the same.
    """
    text, result = str(op.operation), op.result
    body = text[text.index("dense<") + len("dense<") : text.rindex("> : tensor<")]
    if body.startswith('"'):
        elements = np.frombuffer(bytes.fromhex(body[3:-1]), result.dtype)
    else:
        part = np.empty(0, result.dtype).real.dtype
        numbers = np.array([_number(word, part) for word in _NUMBER.findall(body)], part)
        elements = numbers.view(result.dtype)
    return np.broadcast_to(elements[0], result.shape) if elements.size == 1 else elements.reshape(result.shape)


def _number(word: str, dtype: np.dtype) -> np.generic:
    if word.startswith("0x"):
        return np.frombuffer(int(word, 16).to_bytes(dtype.itemsize, "little"), dtype)[0]
    return dtype.type(float(word))
