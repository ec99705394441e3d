"""Collectives between the shards of one replica: all-reduce, reduce-scatter and all-gather of one tensor per IPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._tracing.construction_errors import defer
from ipu_tf.lowering.tensorflow.shards import shards_of
from ipu_tf.ops.reduce_scatter_op import collective_operation
from ipu_tf.sharding import shard_scope

__all__ = ["all_gather", "all_reduce", "reduce_scatter"]

_REDUCTIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "ADD": lambda rows: tf.reduce_sum(rows, 0),
    "MUL": lambda rows: tf.reduce_prod(rows, 0),
    "MIN": lambda rows: tf.reduce_min(rows, 0),
    "MAX": lambda rows: tf.reduce_max(rows, 0),
    "LOGICAL_AND": lambda rows: tf.reduce_all(rows, 0),
    "LOGICAL_OR": lambda rows: tf.reduce_any(rows, 0),
    "SQUARE_ADD": lambda rows: tf.reduce_sum(rows * rows, 0),
    "MEAN": lambda rows: tf.reduce_mean(rows, 0),
}


def all_reduce(input_shards: Sequence[tf.Tensor], op: str) -> tuple[tf.Tensor, ...]:
    """Every shard's tensor combined, a copy for each shard.

    Args:
        input_shards: tensor `i` on shard `i`; of one dtype, of rank 0 or 1. Shorter ones are filled up with zeros.
        op: as for `reduce_scatter_op.reduce_scatter`; LOCAL leaves each its own.

    Returns:
        A tensor of rank 1 for each shard.

    Raises:
        ValueError: for tensors given twice, of different dtypes or ranks, or an unknown `op`.
        TypeError: for a mean of whole numbers.
        tf.errors.FailedPreconditionError: if tensor `i` is on another shard; in a graph, when the program runs.
    """
    rows = _rows(input_shards)
    operation = collective_operation(op, rows.dtype)
    if operation == "LOCAL":
        return _on_shards(tf.unstack(rows))

    @tf.custom_gradient
    def reduced(*shards: tf.Tensor) -> Any:
        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
            # Each shard's result depends on all inputs: theirs is the same reduction of what comes back.
            return [_REDUCTIONS[operation](tf.stack(upstream))] * len(shards)

        return [_REDUCTIONS[operation](tf.stack(shards))] * len(shards), gradient

    return _on_shards(reduced(*tf.unstack(rows)))


def reduce_scatter(input_shards: Sequence[tf.Tensor], op: str) -> tuple[tf.Tensor, ...]:
    """Every shard's tensor combined; shard `i` keeps the `i`-th part.

    Where the shards do not divide the elements, the first shards keep one more than the others.

    Args:
        input_shards: as for `all_reduce`.
        op: as for `all_reduce`.

    Returns:
        For each shard `[ceil(n / shards)]`, filled up with zeros.

    Raises:
        ValueError, TypeError, tf.errors.FailedPreconditionError: as `all_reduce`.
    """
    rows = _rows(input_shards)
    operation, count = collective_operation(op, rows.dtype), len(input_shards)
    shares = _shares(rows.shape[1], count)
    if operation == "LOCAL":
        parts = [part[i] for i, part in enumerate(tf.split(rows, shares, axis=1))]
    else:
        parts = tf.split(_REDUCTIONS[operation](rows), shares)
    return _on_shards([tf.pad(part, [[0, shares[0] - share]]) for part, share in zip(parts, shares, strict=True)])


def all_gather(input_shards: Sequence[tf.Tensor], axis: int = 0) -> tuple[tf.Tensor, ...]:
    """Every shard's tensor joined, a copy for each shard.

    Args:
        input_shards: tensor `i` on shard `i`; of one dtype and rank.
        axis: along which they are joined; scalars make a tensor of rank 1.

    Raises:
        ValueError, TypeError, tf.errors.FailedPreconditionError: as `all_reduce`.
    """
    _check(input_shards)
    shards = [tensor[None] if tensor.shape.rank == 0 else tensor for tensor in input_shards]
    return _on_shards([tf.concat(shards, axis)] * len(shards))


def _shares(elements: int, count: int) -> list[int]:
    """Returns how many elements each shard keeps."""
    return [elements // count + (shard < elements % count) for shard in range(count)]


def _rows(input_shards: Sequence[tf.Tensor]) -> tf.Tensor:
    """The shards as rows of one tensor, filled up with zeros to the longest."""
    _check(input_shards)
    if input_shards[0].shape.rank > 1:
        raise ValueError(f"Wanted tensors of rank 0 or 1. Received: shape {input_shards[0].shape}.")
    flat = [tf.reshape(tensor, [-1]) for tensor in input_shards]
    longest = max(tensor.shape[0] for tensor in flat)
    return tf.stack([tf.pad(tensor, [[0, longest - tensor.shape[0]]]) for tensor in flat])


def _check(input_shards: Sequence[tf.Tensor]) -> None:
    if len({id(tensor) for tensor in input_shards}) != len(input_shards):
        raise ValueError("input_shards should not contain any duplicate entries.")
    if len({tensor.dtype for tensor in input_shards}) != 1:
        raise ValueError("Expected tensors to all be of the same type.")
    if len({tensor.shape.rank for tensor in input_shards}) != 1:
        raise ValueError("Expected tensors to all be of the same rank.")
    for index, tensor in enumerate(input_shards):
        shards = None if tf.executing_eagerly() else shards_of(tensor.op)
        if shards is not None and shards != [index]:
            text = (
                f"Tensor {index} of input_shards must be on shard {index}, in increasing order. Received: a tensor on "
                f"shard {', '.join(map(str, shards))}."
            )
            defer(tf.errors.FailedPreconditionError(None, None, text))


def _on_shards(tensors: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
    placed = []
    for index, tensor in enumerate(tensors):
        with shard_scope([index]):
            placed.append(tf.identity(tensor))
    return tuple(placed)
