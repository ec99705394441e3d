"""Quantised layers of Keras whose weights stay packed where generation is traced.

    inputs --> quantised as the layer says --> product with packed weights --> scales --> bias, activation

Keras's own layers unpack the weights first, as a whole, for each token. The numbers are the same, at rounding.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from ipu_tf._ops.packed_product import PackedForm, packed_product
from ipu_tf._state.context import context_value
from keras_ipu.stock import patches as keras_patches

_packing: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_packed_products", default=False)


def packed_products() -> contextlib.AbstractContextManager[None]:
    """Context manager: layers that are traced leave their weights packed. What is traced has no gradient."""
    return context_value(_packing, True)


def patch_quantized_layers() -> None:
    """Patches Keras's quantised layers; where generation is not traced they do as in stock Keras. Idempotent."""
    for owner, bits, ours in (
        (keras.layers.Dense, 8, _dense),
        (keras.layers.Dense, 4, _dense),
        (keras.layers.EinsumDense, 8, _einsum_dense),
        (keras.layers.EinsumDense, 4, _einsum_dense),
        (keras.layers.Embedding, 4, _looked_up),
        (keras.layers.ReversibleEmbedding, 8, _reversed),
        (keras.layers.ReversibleEmbedding, 4, _reversed),
    ):
        keras_patches.patch_method(owner, f"_int{bits}_call", _packs, ours)


def _packs(layer: Any) -> bool:
    return _packing.get() and layer.compute_dtype == "float32" and not getattr(layer, "lora_enabled", False)


@dataclasses.dataclass(frozen=True)
class _Matrix:
    """A layer's weights as a matrix.

    Attributes:
        weights, scale, zero: arrays; zero is there with groups only.
        form: how they are packed.
        quantizer: of the inputs; None for inputs as they are.
    """

    weights: Any
    scale: Any
    zero: Any
    form: PackedForm
    quantizer: Callable[..., Any] | None

    def product(self, inputs: Any, axes: Sequence[int]) -> Any:
        """Returns inputs, contracted over their last axes, times the weights: `[rows, columns]`."""
        form, scales = self.form, None
        if self.quantizer is not None:
            inputs, scales = self.quantizer(inputs, axis=tuple(axes))
            scales = ops.reshape(scales, (-1, 1))
        rows = ops.reshape(ops.cast(inputs, "float32"), (-1, form.inner))
        weights, scale = map(ops.convert_to_tensor, (self.weights, self.scale))
        weights = ops.reshape(weights, (form.columns if form.turned else form.inner, -1))
        if form.block:
            product = packed_product(rows, weights, form, scale, ops.convert_to_tensor(self.zero))
            return product if scales is None else ops.divide(product, scales)
        divisor = ops.reshape(scale, (1, -1))
        divisor = divisor if scales is None else ops.multiply(divisor, scales)
        return ops.divide(ops.cast(packed_product(rows, weights, form), "float32"), divisor)


def _matrix(layer: Any, name: str, inner: int, columns: int, turned: bool = False) -> _Matrix:
    """Returns the weights of a layer by the names that Keras gives their variables."""
    bits = 4 if layer.quantization_mode == "int4" else 8
    block = max(getattr(layer, "_int4_block_size", None) or 0, 0) if bits == 4 else 0
    quantizer = layer.inputs_quantizer
    if block and not turned:
        quantizer = None  # Keras's dense layers do not use it with groups
    form = PackedForm(inner, columns, bits, turned, block, quantizer is not None and not block)
    weights = layer.reverse_embeddings if name == "reverse_embeddings" else getattr(layer, f"_{name}")
    zero = getattr(layer, f"{name}_zero") if block else None
    return _Matrix(weights, getattr(layer, f"{name}_scale"), zero, form, quantizer)


def _finished(layer: Any, outputs: Any) -> Any:
    if layer.bias is not None:
        outputs = ops.add(outputs, layer.bias)
    return outputs if layer.activation is None else layer.activation(outputs)


def _dense(stock: Callable[..., Any], layer: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    shape = _known(inputs)
    if shape is None:
        return stock(layer, inputs, *args, **kwargs)
    outputs = _matrix(layer, "kernel", shape[-1], layer.units).product(inputs, [-1])
    return _finished(layer, ops.reshape(outputs, (*shape[:-1], layer.units)))


def _einsum_dense(stock: Callable[..., Any], layer: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    shape, contracted = _known(inputs), _contracted(layer.equation)
    if shape is None or not contracted:
        return stock(layer, inputs, *args, **kwargs)
    kernel = layer.original_kernel_shape if layer.quantization_mode == "int4" else tuple(layer._kernel.shape)
    after = kernel[contracted:]
    matrix = _matrix(layer, "kernel", math.prod(kernel[:contracted]), math.prod(after))
    outputs = matrix.product(inputs, range(len(shape) - contracted, len(shape)))
    return _finished(layer, ops.reshape(outputs, (*shape[: len(shape) - contracted], *after)))


def _contracted(equation: str) -> int:
    """Returns how many axes a product sums over, if they are the inputs' last and the kernel's first; else 0."""
    operands, result = equation.split("->")
    inputs, kernel = operands.split(",")
    for count in range(1, len(kernel) + 1):
        if inputs.endswith(kernel[:count]) and result == inputs[: len(inputs) - count] + kernel[count:]:
            return count
    return 0


def _reversed(stock: Callable[..., Any], layer: Any, inputs: Any, reverse: bool = False) -> Any:
    shape, tied = _known(inputs), layer.tie_weights
    if not reverse or shape is None or (layer.quantization_mode == "int4" and not tied):
        return stock(layer, inputs, reverse=reverse)
    name = "embeddings" if tied else "reverse_embeddings"
    outputs = _matrix(layer, name, layer.output_dim, layer.input_dim, tied).product(inputs, [-1])
    logits = ops.reshape(outputs, (*shape[:-1], layer.input_dim))
    cap = layer.logit_soft_cap
    return logits if cap is None else ops.multiply(ops.tanh(ops.divide(logits, cap)), cap)


def _looked_up(stock: Callable[..., Any], layer: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Unpacks the rows of the table that are looked up; Keras unpacks the whole table for them."""
    places = ops.cast(inputs, "int32")
    packed = ops.take(layer._embeddings, places, axis=0)
    rows = keras.quantizers.unpack_int4(packed, layer._orig_output_dim, axis=-1)
    rows = ops.cast(rows, layer.compute_dtype)
    scale = ops.take(layer.embeddings_scale, places, axis=0)
    if max(getattr(layer, "_int4_block_size", None) or 0, 0) == 0:
        return ops.divide(rows, ops.expand_dims(scale, axis=-1))
    groups = ops.cast(layer.g_idx, "int32")
    zero = ops.take(ops.take(layer.embeddings_zero, places, axis=0), groups, axis=-1)
    return ops.multiply(ops.subtract(rows, ops.cast(zero, rows.dtype)), ops.take(scale, groups, axis=-1))


def _known(inputs: Any) -> tuple[int, ...] | None:
    """Returns the shape of inputs; None if it is not known while the program is traced."""
    shape = tuple(inputs.shape)
    return None if None in shape else shape
