"""Survey: values of operands that TensorFlow's CPU kernels raise for, and what a program on the device does with each.

Those that raise on the device are in `test_operand_checks.py`. Here are the others, which docs/differences.md names:
what the device takes as XLA does, and what it refuses before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.lowering.stablehlo.errors import LoweringError
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

Strategy = ipu.ipu_strategy.IPUStrategyV1
Row = tuple[Callable[..., Any], Any, Any]
X = np.arange(12, dtype=np.float32).reshape(3, 4)
ZEROS, NANS = np.zeros((3, 3), np.float32), np.full((3, 3), np.nan, np.float32)
IMAGE = X.reshape(1, 3, 4, 1)


def i(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def pushed_twice(x: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
    items = tf.raw_ops.EmptyTensorList(element_shape=[4], max_num_elements=1, element_dtype=tf.float32)
    for row in (x[0], x[1]):
        items = tf.raw_ops.TensorListPushBack(input_handle=items, tensor=row)
    return tf.raw_ops.TensorListStack(input_handle=items, element_shape=[4], element_dtype=tf.float32)


def sparse(k: tf.Tensor) -> tf.SparseTensor:
    return tf.SparseTensor(tf.cast(k, tf.int64), [1.0, 2.0], [3, 3])


#: Stock raises on the CPU; the device computes what XLA does. A function, and its operands.
AS_XLA: dict[str, Row] = {
    "gather": (tf.gather, X, i(5)),
    "gather, negative": (tf.gather, X, i(-1)),
    "gather, batch_dims": (lambda x, k: tf.gather(x, k, batch_dims=1), X, i([7], [0], [0])),
    "gather_nd": (tf.gather_nd, X, i([5, 0])),
    "embedding_lookup": (tf.nn.embedding_lookup, X, i(5)),
    "scatter_nd": (lambda x, k: tf.scatter_nd(k, x, [3, 4]), X, i([0], [1], [9])),
    "tensor_scatter_nd_update": (lambda x, k: tf.tensor_scatter_nd_update(x, k, x), X, i([0], [1], [9])),
    "tensor_scatter_nd_add": (lambda x, k: tf.tensor_scatter_nd_add(x, k, x), X, i([0], [1], [9])),
    "sparse.to_dense": (lambda x, k: tf.sparse.to_dense(sparse(k)), X, i([0, 0], [9, 0])),
    "unsorted_segment_sum": (lambda x, k: tf.math.unsorted_segment_sum(x, k, 3), X, i(0, 1, 7)),
    "unsorted_segment_max": (lambda x, k: tf.math.unsorted_segment_max(x, k, 3), X, i(0, 1, 7)),
    "floordiv": (lambda a, b: a // b, i(5), i(0)),
    "floormod": (lambda a, b: a % b, i(5), i(0)),
    "truncatediv": (tf.truncatediv, i(5), i(0)),
    "truncatemod": (tf.truncatemod, i(5), i(0)),
    "power": (lambda a, b: a**b, i(5), i(-1)),
    "sparse_softmax_cross_entropy": (
        lambda x, k: tf.nn.sparse_softmax_cross_entropy_with_logits(k, x),
        X,
        i(0, 1, 9),
    ),
    "DenseBincount": (
        lambda x, k: tf.raw_ops.DenseBincount(input=k, size=4, weights=tf.constant([], tf.float32)),
        X,
        i(0, -1, 2),
    ),
    "linalg.band_part": (lambda x, k: tf.linalg.band_part(x, k, 0), X, np.int32(9)),
    "quantize_and_dequantize_v2": (
        lambda x, k: tf.quantization.quantize_and_dequantize_v2(x, k, -k, range_given=True),
        X,
        np.float32(1),
    ),
    "TensorListPushBack of a full list": (pushed_twice, X, 0),
}


#: Stock raises on the CPU; the device takes the nearest element. A function, an operand, an index, the one it takes.
CLAMPED: dict[str, tuple[Callable[..., Any], Any, Any, Any]] = {
    "slice": (lambda x, k: tf.slice(x, k, [2, 2]), X, i(2, 3), i(1, 2)),
    "slice, negative": (lambda x, k: tf.slice(x, k, [2, 2]), X, i(-1, 0), i(0, 0)),
    "x[i]": (lambda x, k: x[k], X, np.int32(9), np.int32(2)),
}

#: Stock raises on the CPU; the device computes no finite number.
NOT_FINITE: dict[str, tuple[Callable[..., Any], Any]] = {
    "linalg.inv": (tf.linalg.inv, ZEROS),
    "linalg.solve": (lambda x: tf.linalg.solve(x, x), ZEROS),
    "linalg.eigh": (lambda x: tf.linalg.eigh(x)[0], NANS),
}


@pytest.mark.parametrize("name", AS_XLA)
def test_what_is_not_checked(strategy: Strategy, name: str) -> None:  # noqa: F811
    function, *operands = AS_XLA[name]
    given = [tf.constant(operand) for operand in operands]
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.InternalError)):
        tf.function(function)(*given)
    with device_work() as work:
        mine = strategy.run(tf.function(function), given)
    assert work.counts.executions == 1
    np.testing.assert_array_equal(mine, tf.function(function, jit_compile=True)(*given))


@pytest.mark.parametrize("name", CLAMPED)
def test_what_is_clamped(strategy: Strategy, name: str) -> None:  # noqa: F811
    function, x, index, nearest = CLAMPED[name]
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(function)(tf.constant(x), tf.constant(index))
    mine = strategy.run(tf.function(function), [tf.constant(x), tf.constant(index)])
    np.testing.assert_array_equal(mine, tf.function(function)(tf.constant(x), tf.constant(nearest)))


@pytest.mark.parametrize("name", NOT_FINITE)
def test_what_is_not_finite(strategy: Strategy, name: str) -> None:  # noqa: F811
    function, x = NOT_FINITE[name]
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(function)(tf.constant(x))
    assert not np.isfinite(strategy.run(tf.function(function), [tf.constant(x)])).any()


#: Stock raises on the CPU, when it runs; the device refuses the program, whatever the operand is.
REFUSED: dict[str, Row] = {
    "segment_sum": (tf.math.segment_sum, X, i(1, 0, 1)),
    "range": (lambda x, k: tf.range(0, 5, k), X, np.int32(0)),
    "tile": (tf.tile, X, i(-1, 1)),
    "pad": (tf.pad, X, i([-1, 0], [0, 0])),
    "one_hot": (lambda x, k: tf.one_hot(0, k), X, np.int32(-1)),
    "reduce_sum": (tf.reduce_sum, X, i(5)),
    "split": (lambda x, k: tf.split(x, k, axis=1)[0], X, i(5, 1)),
    "slice, size": (lambda x, k: tf.slice(x, [0, 0], k), X, i(9, 9)),
    "dynamic_partition": (lambda x, k: tf.dynamic_partition(x, k, 2), X, i(0, 1, 5)),
    "dynamic_stitch": (lambda x, k: tf.dynamic_stitch([k], [x]), X, i(0, -1, 2)),
    "top_k": (lambda x, k: tf.math.top_k(x, k)[0], X, np.int32(9)),
    "histogram_fixed_width": (lambda x, k: tf.histogram_fixed_width(x, k, 3), X, np.array([5, 1], np.float32)),
    "linalg.lu": (lambda x, k: tf.linalg.lu(x)[0], ZEROS, 0),
    "linalg.diag_part": (lambda x, k: tf.linalg.diag_part(x, k=k), X, np.int32(9)),
    "crop_and_resize": (
        lambda x, k: tf.image.crop_and_resize(x, [[0.0, 0.0, 1.0, 1.0]], k, [2, 2]),
        IMAGE,
        i(5),
    ),
    "resize": (tf.image.resize, IMAGE, i(-1, 2)),
    "quantize": (lambda x, k: tf.quantization.quantize(x, k, -k, tf.qint8)[0], X, np.float32(1)),
    "sparse_dense_matmul": (lambda x, k: tf.sparse.sparse_dense_matmul(sparse(k), x), X[:, :3], i([0, 0], [9, 0])),
    "TensorArray, size": (lambda x, k: tf.TensorArray(tf.float32, k).write(0, x).read(0), X, np.int32(-1)),
    "categorical": (tf.random.categorical, X, np.int32(-1)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_device_refuses_before_it_runs(strategy: Strategy, name: str) -> None:  # noqa: F811
    function, *operands = REFUSED[name]
    given = [tf.constant(operand) for operand in operands]
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError)):
        tf.function(function)(*given)
    with device_work() as work, pytest.raises((LoweringError, NotImplementedError)):
        strategy.run(tf.function(function), given)
    assert work.counts.executions == 0


#: Stock computes something, on the CPU too.
TAKEN: dict[str, Row] = {
    "in_top_k": (lambda x, k: tf.math.in_top_k(k, x, 2), X, i(0, 1, 9)),
    "linalg.svd": (lambda x, k: tf.linalg.svd(x, compute_uv=False), NANS, 0),
    "linalg.logdet": (lambda x, k: tf.linalg.logdet(x), -np.eye(3, dtype=np.float32), 0),
    "linalg.triangular_solve": (tf.linalg.triangular_solve, ZEROS, ZEROS),
    "switch_case": (lambda x, k: tf.switch_case(k, [lambda: x, lambda: -x]), X, np.int32(9)),
    "sequence_mask": (lambda x, k: tf.sequence_mask(k, 4), X, i(9)),
    "one_hot": (lambda x, k: tf.one_hot(k, 3), X, i(9, -1)),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_stock_takes_too(strategy: Strategy, name: str) -> None:  # noqa: F811
    function, *operands = TAKEN[name]
    given = [tf.constant(operand) for operand in operands]
    with device_work() as work:
        mine = strategy.run(tf.function(function), given)
    assert work.counts.executions == 1
    np.testing.assert_array_equal(mine, tf.function(function)(*given))
