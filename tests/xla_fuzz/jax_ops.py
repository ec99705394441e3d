"""Fuzzed programs in JAX, as Keras on JAX has them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.xla_fuzz.ops import Window


class JaxOps:
    """`Ops` on JAX's arrays."""

    add = staticmethod(jnp.add)
    subtract = staticmethod(jnp.subtract)
    multiply = staticmethod(jnp.multiply)
    divide = staticmethod(jnp.divide)
    maximum = staticmethod(jnp.maximum)
    absolute = staticmethod(jnp.abs)
    exp = staticmethod(jnp.exp)
    log = staticmethod(jnp.log)
    sqrt = staticmethod(jnp.sqrt)
    tanh = staticmethod(jnp.tanh)
    broadcast = staticmethod(jnp.broadcast_to)
    reshape = staticmethod(jnp.reshape)
    transpose = staticmethod(jnp.transpose)
    cumulative_sum = staticmethod(jnp.cumsum)
    argmax = staticmethod(jnp.argmax)

    def shape(self, x: Any) -> tuple[int, ...]:
        return tuple(x.shape)

    def matmul(self, a: Any, b: Any) -> Any:
        return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)

    def sum(self, x: Any, axes: tuple[int, ...], keep: bool = False) -> Any:
        return jnp.sum(x, axes, keepdims=keep)

    def max(self, x: Any, axes: tuple[int, ...], keep: bool = False) -> Any:
        return jnp.max(x, axes, keepdims=keep)

    def segment_sum(self, x: Any, segments: Any, count: int) -> Any:
        return jax.ops.segment_sum(x, segments, count)

    def convolution(self, x: Any, kernel: Any, window: Window, groups: int) -> Any:
        letters = "XYZ"[: len(window.size)]
        return lax.conv_general_dilated(
            x,
            kernel,
            window.strides,
            window.padding,
            rhs_dilation=window.dilation,
            dimension_numbers=(f"N{letters}C", f"{letters}IO", f"N{letters}C"),
            feature_group_count=groups,
            precision=lax.Precision.HIGHEST,
        )

    def input_gradient(self, kernel: Any, gradient: Any, window: Window, groups: int, shape: tuple[int, ...]) -> Any:
        return self._gradient(lambda x: self.convolution(x, kernel, window, groups), gradient, shape)

    def kernel_gradient(self, x: Any, gradient: Any, window: Window, groups: int, shape: tuple[int, ...]) -> Any:
        return self._gradient(lambda kernel: self.convolution(x, kernel, window, groups), gradient, shape)

    def max_pool(self, x: Any, window: Window) -> Any:
        return self._pooled(x, -jnp.inf, lax.max, window)

    def average_pool(self, x: Any, window: Window) -> Any:
        return self._pooled(x, 0.0, lax.add, window) / self._pooled(jnp.ones_like(x), 0.0, lax.add, window)

    def average_pool_gradient(self, gradient: Any, window: Window, shape: tuple[int, ...]) -> Any:
        return self._gradient(lambda x: self.average_pool(x, window), gradient, shape)

    def _pooled(self, x: Any, start: float, reduce: Any, window: Window) -> Any:
        size, strides, padding = (1, *window.size, 1), (1, *window.strides, 1), ((0, 0), *window.padding, (0, 0))
        return lax.reduce_window(x, start, reduce, size, strides, padding)

    def _gradient(self, function: Any, gradient: Any, shape: tuple[int, ...]) -> Any:
        """Of a linear function, wherever it is taken."""
        return jax.vjp(function, jnp.zeros(shape, gradient.dtype))[1](gradient)[0]
