"""Fuzzed programs in TensorFlow, as users write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.xla_fuzz.ops import Window


class TensorFlowOps:
    """`Ops` on tensors."""

    add = staticmethod(tf.add)
    subtract = staticmethod(tf.subtract)
    multiply = staticmethod(tf.multiply)
    divide = staticmethod(tf.divide)
    maximum = staticmethod(tf.maximum)
    absolute = staticmethod(tf.abs)
    exp = staticmethod(tf.exp)
    log = staticmethod(tf.math.log)
    sqrt = staticmethod(tf.sqrt)
    tanh = staticmethod(tf.tanh)
    broadcast = staticmethod(tf.broadcast_to)
    reshape = staticmethod(tf.reshape)
    transpose = staticmethod(tf.transpose)
    matmul = staticmethod(tf.matmul)
    cumulative_sum = staticmethod(tf.cumsum)
    sum = staticmethod(tf.reduce_sum)
    max = staticmethod(tf.reduce_max)
    argmax = staticmethod(tf.argmax)
    segment_sum = staticmethod(tf.math.unsorted_segment_sum)

    def shape(self, x: Any) -> tuple[int, ...]:
        return tuple(x.shape)

    def convolution(self, x: Any, kernel: Any, window: Window, groups: int) -> Any:
        """Grouped as the kernel's channels say."""
        assert kernel.shape[-2] * groups == x.shape[-1]
        padded = tf.pad(x, [[0, 0], *window.padding, [0, 0]])
        return tf.nn.convolution(padded, kernel, window.strides, "VALID", dilations=window.dilation)

    def input_gradient(self, kernel: Any, gradient: Any, window: Window, groups: int, shape: tuple[int, ...]) -> Any:
        return self._gradient(lambda x: self.convolution(x, kernel, window, groups), gradient, shape)

    def kernel_gradient(self, x: Any, gradient: Any, window: Window, groups: int, shape: tuple[int, ...]) -> Any:
        return self._gradient(lambda kernel: self.convolution(x, kernel, window, groups), gradient, shape)

    def max_pool(self, x: Any, window: Window) -> Any:
        return tf.nn.max_pool(x, window.size, window.strides, _same_or_valid(window))

    def average_pool(self, x: Any, window: Window) -> Any:
        return tf.nn.avg_pool(x, window.size, window.strides, _same_or_valid(window))

    def average_pool_gradient(self, gradient: Any, window: Window, shape: tuple[int, ...]) -> Any:
        return self._gradient(lambda x: self.average_pool(x, window), gradient, shape)

    def _gradient(self, function: Any, gradient: Any, shape: tuple[int, ...]) -> Any:
        """Of a linear function, wherever it is taken."""
        at = tf.constant(np.zeros(shape), gradient.dtype)
        with tf.GradientTape() as tape:
            tape.watch(at)
            result = function(at)
        return tape.gradient(result, at, gradient)


def _same_or_valid(window: Window) -> str:
    return "SAME" if any(any(pad) for pad in window.padding) else "VALID"
