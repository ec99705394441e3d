"""Operations of fuzzed programs, and their composition."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Protocol


@dataclasses.dataclass(frozen=True)
class Window:
    """Strides and padding of a window over the spatial axes of `[batch, *spatial, channels]`.

    Attributes:
        size: of the window.
        strides: steps between windows.
        padding: before and after, for each axis.
        dilation: steps between the elements of the window.
    """

    size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    def output(self, spatial: tuple[int, ...]) -> tuple[int, ...]:
        """The spatial shape of the result."""
        axes = zip(spatial, self.size, self.strides, self.padding, self.dilation, strict=True)
        return tuple((n + sum(pad) - (k - 1) * apart - 1) // stride + 1 for n, k, stride, pad, apart in axes)


class Ops(Protocol):
    """Interface that computes programs: on NumPy arrays with bounds, TensorFlow's tensors or JAX's arrays."""

    def shape(self, x: Any) -> tuple[int, ...]: ...
    def matmul(self, a: Any, b: Any) -> Any: ...
    def add(self, a: Any, b: Any) -> Any: ...
    def subtract(self, a: Any, b: Any) -> Any: ...
    def multiply(self, a: Any, b: Any) -> Any: ...
    def divide(self, a: Any, b: Any) -> Any: ...
    def maximum(self, a: Any, b: Any) -> Any: ...
    def absolute(self, x: Any) -> Any: ...
    def exp(self, x: Any) -> Any: ...
    def log(self, x: Any) -> Any: ...
    def sqrt(self, x: Any) -> Any: ...
    def tanh(self, x: Any) -> Any: ...
    def broadcast(self, x: Any, shape: tuple[int, ...]) -> Any: ...
    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any: ...
    def transpose(self, x: Any, order: tuple[int, ...]) -> Any: ...
    def sum(self, x: Any, axes: tuple[int, ...], keep: bool = False) -> Any: ...
    def max(self, x: Any, axes: tuple[int, ...], keep: bool = False) -> Any: ...
    def cumulative_sum(self, x: Any, axis: int) -> Any: ...
    def segment_sum(self, x: Any, segments: Any, count: int) -> Any: ...
    def argmax(self, x: Any, axis: int) -> Any: ...
    def convolution(self, x: Any, kernel: Any, window: Window, groups: int) -> Any: ...
    def input_gradient(
        self, kernel: Any, gradient: Any, window: Window, groups: int, shape: tuple[int, ...]
    ) -> Any: ...
    def kernel_gradient(self, x: Any, gradient: Any, window: Window, groups: int, shape: tuple[int, ...]) -> Any: ...
    def max_pool(self, x: Any, window: Window) -> Any: ...
    def average_pool(self, x: Any, window: Window) -> Any: ...
    def average_pool_gradient(self, gradient: Any, window: Window, shape: tuple[int, ...]) -> Any: ...


def count_of(ops: Ops, x: Any, axes: tuple[int, ...]) -> float:
    """Counts the elements that a reduction over these axes takes together."""
    return float(math.prod(ops.shape(x)[axis] for axis in axes))


def mean(ops: Ops, x: Any, axes: tuple[int, ...], keep: bool = False) -> Any:
    """The mean over axes."""
    return ops.divide(ops.sum(x, axes, keep), count_of(ops, x, axes))


def variance(ops: Ops, x: Any, axes: tuple[int, ...], keep: bool = False) -> Any:
    """The variance over axes."""
    centred = ops.subtract(x, mean(ops, x, axes, True))
    return mean(ops, ops.multiply(centred, centred), axes, keep)


def norm(ops: Ops, x: Any, axes: tuple[int, ...]) -> Any:
    """The Euclidean norm over axes."""
    return ops.sqrt(ops.sum(ops.multiply(x, x), axes))


def softmax(ops: Ops, x: Any, axis: int) -> Any:
    """Softmax along an axis."""
    powers = ops.exp(ops.subtract(x, ops.max(x, (axis,), True)))
    return ops.divide(powers, ops.sum(powers, (axis,), True))


def log_sum_exp(ops: Ops, x: Any, axis: int) -> Any:
    """The logarithm of the sum of exponentials along an axis."""
    top = ops.max(x, (axis,), True)
    return ops.add(ops.log(ops.sum(ops.exp(ops.subtract(x, top)), (axis,), True)), top)


def normalised(ops: Ops, x: Any, axes: tuple[int, ...]) -> Any:
    """Layer or batch normalisation over axes."""
    deviation = ops.sqrt(ops.add(variance(ops, x, axes, True), 1e-3))
    return ops.divide(ops.subtract(x, mean(ops, x, axes, True)), deviation)
