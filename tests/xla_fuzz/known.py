"""Programs that a version of XLA computed wrongly, or that crashed the process; each runs by itself, first of all."""

from __future__ import annotations

import math

import numpy as np

from tests.xla_fuzz.cases import Case
from tests.xla_fuzz.ops import Ops, Window


def _whole(*shape: int) -> np.ndarray:
    return (np.arange(math.prod(shape), dtype=np.float32).reshape(shape) % 7 - 3).astype(np.float32)


def _rows(count: int) -> np.ndarray:
    rows = np.zeros((count, 3), np.float32)
    rows[:, 0] = np.arange(count) % 2000
    return rows


_EYE = np.eye(3, dtype=np.float32)


def _squares_of_product(ops: Ops, inputs: tuple[object, ...]) -> object:
    product = ops.matmul(inputs[0], ops.transpose(inputs[1], (1, 0)))
    return ops.sum(ops.multiply(product, product), (0,))


def _weighted(ops: Ops, inputs: tuple[object, ...]) -> object:
    weights = ops.reshape(inputs[0], (10, 4, 6, 1, 1, 1, 1, 1))
    return ops.log(ops.maximum(ops.sum(ops.multiply(weights, inputs[1]), (2,)), 1e-3))


_POOL = Window((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1))

KNOWN = (
    # jax issue 39103: with jaxlib 0.10.2 the last value is that of another row.
    Case("squares of a product, summed: 32769 rows", (_EYE, _rows(32769)), _squares_of_product),
    Case("squares of a product, summed: 65537 rows", (_EYE, _rows(65537)), _squares_of_product),
    # jax issue 39257 ends the process with jaxlib 0.10.2 and 0.11.0.
    Case(
        "weighted sum of rank 8",
        (np.ones((10, 4, 6), np.float32), np.ones((10, 4, 6, *[9] * 5), np.float32)),
        _weighted,
    ),
    # jax issue 40412: so does this.
    Case(
        "sum of products of rank 7 with a dimension of 1",
        (_whole(3, 1, 2, 2, 8, 8, 8), _whole(3, 1, 2, 2, 8, 8, 8)),
        lambda ops, x: ops.sum(ops.multiply(*x), (3,)),
    ),
    # tensorflow issue 126812: differs from run to run.
    Case(
        "sum of a broadcast",
        (np.ones((1024, 1), np.float32),),
        lambda ops, x: ops.sum(ops.broadcast(x[0], (2, 1024, 1024)), (0, 1, 2)),
    ),
    # openxla issue 48714: windows of one element ignore base dilation.
    Case(
        "gradient of average pooling",
        (_whole(8, 32, 32, 8),),
        lambda ops, x: ops.average_pool_gradient(x[0], _POOL, (8, 64, 64, 8)),
    ),
)
