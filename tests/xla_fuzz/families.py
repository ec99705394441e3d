"""Random programs: products, elementwise ops, convolutions and poolings, each followed by reductions and more."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.xla_fuzz import ops as composed
from tests.xla_fuzz.cases import Case
from tests.xla_fuzz.ops import Ops, Window

Step = tuple[str, Callable[[Ops, Any], Any]]
_LARGE = 2**19
"""Elements that an array has at most, about."""
_DTYPES = ("float32",) * 7 + ("int32", "float16")


class Maker:
    """Makes a case of random numbers.

    Args:
        seed: of the campaign.
        number: of the case in it.
    """

    def __init__(self, seed: int, number: int) -> None:
        self.random = random.Random(f"{seed} {number}")
        self._values = np.random.default_rng([seed, number])
        self.dtype = np.dtype(self.random.choice(_DTYPES))
        self.whole = self.dtype.kind == "i" or self.random.random() < 0.5

    def make(self) -> Case:
        """A case of any family."""
        families = [self._product] * 3 + [self._elementwise] * 3 + [self._broadcast, self._segments]
        if self.dtype == np.float32:
            families += [self._convolution, self._convolution, self._gradient, self._gradient, self._pooling]
        return self.random.choice(families)()

    def size(self, most: int = _LARGE) -> int:
        """A length: small, middling, or about a power of two from 2^14 on, odd ones among them."""
        kind = self.random.choice("smlll")
        if kind == "s" or most < 64:
            return self.random.randint(1, min(9, most))
        if kind == "m" or most < 2**14:
            return self.random.randint(10, min(1030, most))
        power = 2 ** self.random.randint(14, min(18, most.bit_length() - 1))
        return min(most, power + self.random.choice([-1, 0, 1, 1, 2 * self.random.randint(1, 500) + 1]))

    def array(self, *shape: int) -> np.ndarray:
        """Whole numbers from -2 to 2, or normal ones, sometimes far from zero."""
        if self.whole:
            return self._values.integers(-2, 3, shape).astype(self.dtype)
        offset = self.random.choice([0.0, 0.0, 3.0])
        return (self._values.normal(size=shape) + offset).astype(self.dtype)

    def _product(self) -> Case:
        m = self.size(2**18)
        k = self.random.choice([self.random.randint(1, 9), self.size(max(1, _LARGE // m))])
        n = self.random.choice(
            [self.random.randint(1, 9), self.size(max(1, min(_LARGE // m, _LARGE // k, 2**25 // (m * k))))]
        )
        batch = (self.random.randint(2, 3),) if m * k * 3 < _LARGE and self.random.random() < 0.2 else ()
        turn_a, turn_b, swap = (self.random.random() < 0.5 for _ in range(3))
        if swap:
            m, n = n, m
        a = self.array(*batch, *((k, m) if turn_a else (m, k)))
        b = self.array(*batch, *((n, k) if turn_b else (k, n)))

        def turned(ops: Ops, x: Any, turn: bool) -> Any:
            rank = len(batch) + 2
            return ops.transpose(x, (*range(rank - 2), rank - 1, rank - 2)) if turn else x

        def product(ops: Ops, inputs: Any) -> Any:
            return ops.matmul(turned(ops, inputs[0], turn_a), turned(ops, inputs[1], turn_b))

        text = f"product of {'turned ' * turn_a}{a.shape} and {'turned ' * turn_b}{b.shape}"
        return self._followed(text, (a, b), product, (*batch, m, n))

    def _elementwise(self) -> Case:
        shape = self._shape()
        a, b = self.array(*shape), self.array(*(n if self.random.random() < 0.6 else 1 for n in shape))
        name = self.random.choice(["multiply", "add", "subtract", "maximum"])
        return self._followed(f"{name} {a.shape}, {b.shape}", (a, b), lambda ops, x: getattr(ops, name)(*x), shape)

    def _broadcast(self) -> Case:
        self.whole = True  # equal terms round alike: their sum has no random walk to bound
        wide = self._shape()
        array = self.array(*(n if self.random.random() < 0.5 else 1 for n in wide))
        shape = (self.random.randint(2, 3), *wide) if math.prod(wide) * 3 < 2 * _LARGE else wide
        return self._followed(f"broadcast {array.shape}", (array,), lambda ops, x: ops.broadcast(x[0], shape), shape)

    def _segments(self) -> Case:
        rows, columns, count = self.size(2**17), self.random.randint(1, 4), self.random.randint(1, 50)
        array = self.array(rows, columns)
        ids = self._values.integers(0, count, rows).astype(np.int32)

        def program(ops: Ops, inputs: Any) -> Any:
            return ops.segment_sum(inputs[0], inputs[1], count)

        return Case(f"segment sum of {array.shape} {self.dtype} into {count}", (array, ids), program)

    def _shape(self) -> tuple[int, ...]:
        if self.random.random() < 0.3:
            return tuple(self.random.choice([1, 2, 3, 4, 8]) for _ in range(self.random.randint(3, 8)))
        rows = self.size(2**18)
        shape = [rows, self.size(max(1, _LARGE // rows))]
        if self.random.random() < 0.3:
            shape.append(self.random.randint(1, 3))
        self.random.shuffle(shape)
        return tuple(shape)

    def _window(self, rank: int) -> Window:
        pick = self.random.randint
        size = tuple(pick(1, 5 if rank == 1 else 3) for _ in range(rank))
        padding = tuple((pick(0, k - 1), pick(0, k - 1)) for k in size)
        apart = tuple(self.random.choice([1, 1, 2]) for _ in size)
        if self.random.random() < 0.7:  # TensorFlow has strides or dilation, not both
            return Window(size, tuple(pick(1, 2) for _ in size), padding, (1,) * rank)
        return Window(size, (1,) * rank, padding, apart)

    def _image(self) -> tuple[Window, int, tuple[int, ...], int, int, int]:
        """A window, and a batch, spatial axes, channels of groups, groups and features."""
        rank = self.random.choice([1, 2, 2, 2])
        groups = self.random.choice([1, 1, 1, 2, 3])
        channels, features = self.random.choice([1, 3, 4, 8, 16]), self.random.choice([1, 2, 5, 8, 16])
        room = 2**16 // (channels * groups)
        if rank == 1:
            spatial: tuple[int, ...] = (max(16, self.size(room)),)
        else:
            side = self.random.randint(10, max(10, math.isqrt(room)))
            spatial = (side, self.random.randint(10, max(10, room // side)))
        batch = self.random.randint(1, max(1, min(70, room // math.prod(spatial))))
        return self._window(rank), batch, spatial, channels, groups, features

    def _convolution(self) -> Case:
        window, batch, spatial, channels, groups, features = self._image()
        x = self.array(batch, *spatial, channels * groups)
        kernel = self.array(*window.size, channels, features * groups)
        shape = (batch, *window.output(spatial), features * groups)
        text = f"convolution of {x.shape} and {kernel.shape}, {groups} groups, {window}"
        return self._followed(text, (x, kernel), lambda ops, i: ops.convolution(*i, window, groups), shape)

    def _gradient(self) -> Case:
        window, batch, spatial, channels, groups, features = self._image()
        gradient = self.array(batch, *window.output(spatial), features * groups)
        x = (batch, *spatial, channels * groups)
        kernel = (*window.size, channels, features * groups)
        if self.random.random() < 0.5:
            other, shape, text = self.array(*kernel), x, "input"
            program: Any = lambda ops, i: ops.input_gradient(i[0], i[1], window, groups, x)  # noqa: E731
        else:
            other, shape, text = self.array(*x), kernel, "kernel"
            program = lambda ops, i: ops.kernel_gradient(i[0], i[1], window, groups, kernel)  # noqa: E731
        text = f"{text} gradient of {x} and {kernel}, {groups} groups, {window}"
        return self._followed(text, (other, gradient), program, shape)

    def _pooling(self) -> Case:
        size = self.random.randint(2, 3)
        stride = self.random.choice([1, size])
        spatial = tuple(self.random.randint(2, 20) * size for _ in range(2))
        total = size - stride if self.random.random() < 0.5 else 0
        window = Window((size,) * 2, (stride,) * 2, ((total // 2, total - total // 2),) * 2, (1, 1))
        shape = (self.random.randint(1, 9), *spatial, self.random.randint(1, 9))
        pooled = (shape[0], *window.output(spatial), shape[-1])
        kind = self.random.choice(["max_pool", "average_pool", "average_pool_gradient"])
        if kind == "average_pool_gradient":
            gradient = self.array(*pooled)
            return self._followed(
                f"{kind} to {shape}, {window}",
                (gradient,),
                lambda ops, x: ops.average_pool_gradient(x[0], window, shape),
                shape,
            )
        return self._followed(
            f"{kind} of {shape}, {window}",
            (self.array(*shape),),
            lambda ops, x: getattr(ops, kind)(x[0], window),
            pooled,
        )

    def _followed(self, text: str, inputs: tuple[np.ndarray, ...], start: Any, shape: tuple[int, ...]) -> Case:
        """The case that goes on from a result of this shape: elementwise steps, a reduction, and so on."""
        steps: list[Step] = []
        for _ in range(self.random.randint(0, 4)):
            shape = self._add(steps, shape)
        if shape and self.random.random() < 0.1:
            axis = self.random.randrange(len(shape))
            steps.append((f"argmax {axis}", lambda ops, x: ops.argmax(x, axis)))

        def program(ops: Ops, inputs: Any) -> Any:
            result = start(ops, inputs)
            for _, step in steps:
                result = step(ops, result)
            return result

        told = ", ".join([f"{text} {self.dtype}{' whole' * self.whole}", *(name for name, _ in steps)])
        return Case(told, inputs, program)

    def _add(self, steps: list[Step], shape: tuple[int, ...]) -> tuple[int, ...]:
        """Adds a step; the shape after it."""
        names = ["square", "square", "shift", "absolute", "relu", "transpose"]
        if shape:
            names += ["sum"] * 5 + ["max"] * 2 + ["min", "cumulative_sum"]
        if shape and self.dtype.kind == "f" and not self.whole:
            names += ["mean", "variance", "norm", "softmax", "log_sum_exp", "normalised", "tanh"]
        name = self.random.choice(names)
        axes = tuple(sorted(self.random.sample(range(len(shape)), self.random.randint(1, len(shape))))) if shape else ()
        axis = axes[0] if axes else 0
        if name == "transpose":
            order = tuple(self.random.sample(range(len(shape)), len(shape)))
            steps.append((f"transpose {order}", lambda ops, x: ops.transpose(x, order)))
            return tuple(shape[i] for i in order)
        simple: dict[str, Callable[[Ops, Any], Any]] = {
            "square": lambda ops, x: ops.multiply(x, x),
            "shift": lambda ops, x: ops.add(x, 1),
            "absolute": lambda ops, x: ops.absolute(x),
            "relu": lambda ops, x: ops.maximum(x, 0),
            "tanh": lambda ops, x: ops.tanh(x),
            "cumulative_sum": lambda ops, x: ops.cumulative_sum(x, axis),
            "softmax": lambda ops, x: composed.softmax(ops, x, axis),
            "log_sum_exp": lambda ops, x: composed.log_sum_exp(ops, x, axis),
            "normalised": lambda ops, x: composed.normalised(ops, x, axes),
        }
        if name in simple:
            steps.append((f"{name} {axes}" if shape else name, simple[name]))
            return tuple(1 if name == "log_sum_exp" and i == axis else n for i, n in enumerate(shape))
        reducing: dict[str, Callable[[Ops, Any], Any]] = {
            "sum": lambda ops, x: ops.sum(x, axes),
            "max": lambda ops, x: ops.max(x, axes),
            "min": lambda ops, x: ops.multiply(ops.max(ops.multiply(x, -1), axes), -1),
            "mean": lambda ops, x: composed.mean(ops, x, axes),
            "variance": lambda ops, x: composed.variance(ops, x, axes),
            "norm": lambda ops, x: composed.norm(ops, x, axes),
        }
        steps.append((f"{name} {axes}", reducing[name]))
        return tuple(n for i, n in enumerate(shape) if i not in axes)
