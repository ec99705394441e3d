"""Sharding: places ops on the IPUs of a device, and ops of the backward pass on those of the forward pass.

One emulated device computes everything in one place: shards change no value. They can be read back, and a program
takes as many IPUs of its device as its highest shard asks for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf.lowering.tensorflow import tf_graphs, tf_patches
from ipu_tf.lowering.tensorflow.shards import SHARD_ATTRIBUTE, parse_shards, set_shard_attribute, shard_value, shards_of

__all__ = [
    "dependencies",
    "enable_sharded_gradient_tape",
    "get_shard_from_colocation",
    "get_sharding",
    "has_attr",
    "propagate_sharding",
    "shard_scope",
]


def get_sharding(op: tf.Operation) -> list[int] | None:
    """The IPUs that an op of a graph is on.

    Args:
        op: the op.

    Returns:
        Indices of IPUs within their device; None if none was asked for.
    """
    return shards_of(op)


def has_attr(o: tf.Operation, attr_name: str) -> bool:
    """Returns whether an op of a graph has an attribute.

    Args:
        o: the op.
        attr_name: the attribute's name.
    """
    return attr_name in o.node_def.attr


def dependencies(roots: Iterable[tf.Operation | tf.Tensor]) -> set[tf.Operation]:
    """Every op of a graph that some ops or tensors depend on, by data or by control, themselves included.

    Args:
        roots: the ops or tensors.
    """
    found: set[tf.Operation] = set()
    for root in roots:
        found.update(tf_graphs.ancestors(root if isinstance(root, tf.Operation) else root.op))
    return found


def get_shard_from_colocation(op: tf.Operation) -> list[int] | None:
    """The IPUs of an op that another op is tied to: by colocation, else as one of its inputs.

    Args:
        op: the op that is tied.

    Returns:
        Indices of IPUs; None if no op that it is tied to is on a shard.
    """
    known = {other.name: other for other in op.graph.get_operations()}
    names = [group.decode().removeprefix("loc:@") for group in op.colocation_groups()]
    tied = [known[name] for name in names if name in known] + [tensor.op for tensor in op.inputs]
    return next((shards for shards in map(get_sharding, tied) if shards is not None), None)


def propagate_sharding(g: tf.Graph) -> None:
    """Puts the ops of a graph that are colocated with ops on a shard onto that shard.

    Gradients computed with `colocate_gradients_with_ops=True` follow their forward ops so.

    Args:
        g: the graph.
    """
    waiting = [op for op in g.get_operations() if has_attr(op, "_class") and get_sharding(op) is None]
    placed = True
    while placed:
        found = [(op, get_shard_from_colocation(op)) for op in waiting]
        placed = any(shards is not None for _, shards in found)
        for op, shards in found:
            if shards is not None:
                set_shard_attribute(op, shards)
        waiting = [op for op, shards in found if shards is None]


def enable_sharded_gradient_tape() -> None:
    """Makes gradients that a `tf.GradientTape` computes in a graph take the shard of their forward op.

    `scopes.ipu_shard` does this by itself.
    """
    tf_patches.patch_gradient_tapes(SHARD_ATTRIBUTE, lambda value: shard_scope(parse_shards(value)))


@contextlib.contextmanager
def shard_scope(shards: Sequence[int]) -> Iterator[None]:
    """Ops made within it in the current graph, and their gradients, are on some IPUs: `scopes.ipu_shard` is for users.

    Args:
        shards: indices of IPUs within their device.
    """
    enable_sharded_gradient_tape()
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    with tf_graphs.attribute_scope(SHARD_ATTRIBUTE, shard_value(shards)):
        yield
    for operation in graph.get_operations()[before:]:
        _shard_gradients(operation)


def _shard_gradients(operation: tf.Operation) -> None:
    function = tf_graphs.gradient_function(operation)
    if function is not None and not isinstance(function, _ShardedGradients):
        tf_graphs.set_gradient_function(operation, _ShardedGradients(function))


class _ShardedGradients:
    """An op's gradient function, run on the shards of the op."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, op: tf.Operation, *gradients: Any) -> Any:
        with shard_scope(get_sharding(op) or ()):
            return self._function(op, *gradients)
