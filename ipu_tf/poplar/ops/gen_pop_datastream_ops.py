"""Raw ops of outfeeds and of embedding tables on the host; see `ipu.embedding_ops.HostEmbedding`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf.device.errors import DeviceError, UnknownQueue
from ipu_tf.device.feeds import queues
from ipu_tf.device.feeds.outfeed import Outfeed
from ipu_tf.device.memory import host_tables
from ipu_tf.emulation import record_ignored
from ipu_tf.lowering.programs.tensorflow_errors import to_tensorflow_error
from ipu_tf.lowering.tensorflow.host_calls import apply_marker, lookup_marker, update_marker
from ipu_tf.lowering.tensorflow.host_op import host_op
from ipu_tf.lowering.tensorflow.markers import enqueue_marker

_MODES = ("all", "get_last")


def pop_datastream_outfeed_enqueue(
    inputs: Sequence[Any],
    output_shapes: Sequence[Any] | None = None,
    feed_id: str = "",
    outfeed_mode: str = "all",
    name: str | None = None,
    **attributes: Any,
) -> tf.Operation:
    """Enqueues an element to an outfeed, inside a program.

    Args:
        inputs: the element's tensors, of static shapes.
        output_shapes: their shapes, which the tensors have themselves.
        feed_id: the outfeed's name; the first op with it makes the outfeed.
        outfeed_mode: `all` keeps every element until it is dequeued, `get_last` the newest.
        name: scope of the op's name.
        **attributes: others, such as `prefetch_depth`: recorded, and without effect.

    Raises:
        ValueError: for another mode.
    """
    for key, value in attributes.items():
        record_ignored(f"pop_datastream_outfeed_enqueue.{key}", value)
    _outfeed(feed_id, outfeed_mode)
    with tf.name_scope(name or "outfeed_enqueue"):
        return enqueue_marker(feed_id, inputs)


def pop_datastream_outfeed_dequeue(
    output_types: Sequence[Any],
    output_shapes: Sequence[Any],
    feed_id: str = "",
    outfeed_mode: str = "all",
    name: str | None = None,
    **attributes: Any,
) -> list[tf.Tensor]:
    """Dequeues the elements of an outfeed, when the op runs.

    Args:
        output_types: the dtypes of an element's tensors.
        output_shapes: their shapes.
        feed_id: the outfeed's name; the first op with it makes the outfeed.
        outfeed_mode: `all` gives all elements that wait, with a leading dimension for them, `get_last` the newest.
        name: for the op.
        **attributes: others, such as `device_ordinal`: recorded, and without effect.

    Raises:
        ValueError: for another mode.
        tf.errors.FailedPreconditionError: when it runs, in mode `get_last` before the first element.
    """
    for key, value in attributes.items():
        record_ignored(f"pop_datastream_outfeed_dequeue.{key}", value)
    _outfeed(feed_id, outfeed_mode)
    last = outfeed_mode == "get_last"
    element = [tf.TensorSpec(shape, dtype) for shape, dtype in zip(output_shapes, output_types, strict=True)]
    specs = element if last else [tf.TensorSpec([None, *spec.shape], spec.dtype) for spec in element]

    def take() -> list[np.ndarray]:
        queue = _known(feed_id)
        if not last:
            return list(queue.drain() or [np.zeros((0, *spec.shape), spec.dtype.as_numpy_dtype) for spec in element])
        newest = queue.newest()
        if newest is None:
            raise tf.errors.FailedPreconditionError(
                None, None, f"Outfeed with id='{feed_id}' has no last element: no program gave it one so far."
            )
        return list(newest)

    return host_op(take, [], specs, name or "outfeed_dequeue").results


def _outfeed(feed_id: str, outfeed_mode: str) -> None:
    """Makes an outfeed, unless there is one of its name."""
    if outfeed_mode not in _MODES:
        raise ValueError(f"`outfeed_mode` must be one of {', '.join(_MODES)}. Received: {outfeed_mode!r}.")
    try:
        queues.outfeed(feed_id)
    except UnknownQueue:
        queues.add_outfeed(Outfeed(feed_id, last_only=outfeed_mode == "get_last"))


def _known(feed_id: str) -> Outfeed:
    try:
        return queues.outfeed(feed_id)
    except UnknownQueue as error:
        raise to_tensorflow_error(error) from None


def ipu_host_embedding_register(
    weights: tf.Variable, embedding_id: str, optimizer: str = "SGD", name: str | None = None
) -> tf.Operation:
    """Registers a copy of a variable as a table on the host.

    Args:
        weights: the variable.
        embedding_id: the table's name.
        optimizer: `SGD`, or `SGD+GA` for a table whose updates wait for `ipu_device_embedding_notify`.
        name: for the op.

    Returns:
        The op that does so, in a graph.
    """
    updates_at_once = None if optimizer == "SGD+GA" else 1

    def start(rows: np.ndarray) -> None:
        try:
            host_tables.register(embedding_id, host_tables.HostTable(np.array(rows), updates_at_once))
        except DeviceError as error:
            raise to_tensorflow_error(error) from None

    return host_op(start, [tf.convert_to_tensor(weights)], [], name or "host_embedding_register").operation


def ipu_host_embedding_deregister(weights: tf.Variable, embedding_id: str, name: str | None = None) -> tf.Tensor:
    """Deregisters a table on the host and assigns its values to its variable.

    Args:
        weights: the variable.
        embedding_id: the table's name.
        name: for the op.

    Returns:
        The values.
    """

    def stop() -> list[np.ndarray]:
        try:
            return [host_tables.deregister(embedding_id).rows]
        except DeviceError as error:
            raise to_tensorflow_error(error) from None

    spec = tf.TensorSpec(weights.shape, weights.dtype.base_dtype)
    [rows] = host_op(stop, [], [spec], name or "host_embedding_deregister").results
    with tf.control_dependencies([tf.compat.v1.assign(weights, rows)]):
        return tf.identity(rows)


def ipu_device_embedding_lookup(
    indices: tf.Tensor,
    embedding_id: str,
    embedding_shape: Any,
    dtype: Any,
    partition_strategy: str = "TOKEN",
    name: str | None = None,
) -> tf.Tensor:
    """The rows of a table on the host at some indices, inside a program.

    Args:
        indices: int32, of rank 1.
        embedding_id: the table's name.
        embedding_shape: its shape, `[tokens, encoding]`.
        dtype: its dtype.
        partition_strategy: recorded, without effect.
        name: scope of the op's name.
    """
    _record_partition("ipu_device_embedding_lookup", partition_strategy)
    spec = tf.TensorSpec([*indices.shape, *list(embedding_shape)[1:]], dtype)
    with tf.name_scope(name or "device_embedding_lookup"):
        return lookup_marker(embedding_id, indices, spec)


def ipu_device_embedding_update_add(
    activations: tf.Tensor,
    updates: tf.Tensor,
    indices: tf.Tensor,
    embedding_id: str,
    embedding_shape: Any,
    partition_strategy: str = "TOKEN",
    name: str | None = None,
) -> tf.Operation:
    """Adds to the rows of a table on the host, inside a program.

    Args:
        activations: what was looked up before; only orders the two.
        updates: what to add, one row for each index.
        indices: int32, of rank 1.
        embedding_id: the table's name.
        embedding_shape: its shape.
        partition_strategy: recorded, without effect.
        name: scope of the op's name.
    """
    _record_partition("ipu_device_embedding_update_add", partition_strategy)
    with tf.name_scope(name or "device_embedding_update_add"), tf.control_dependencies([activations]):
        return update_marker(embedding_id, indices, updates)


def ipu_device_embedding_notify(embedding_id: str, name: str | None = None) -> tf.Operation:
    """Applies the pending updates of an `SGD+GA` table on the host, inside a program.

    Args:
        embedding_id: the table's name.
        name: scope of the op's name.
    """
    with tf.name_scope(name or "device_embedding_notify"):
        return apply_marker(embedding_id)


def _record_partition(op: str, strategy: str) -> None:
    record_ignored(f"{op}.partition_strategy", None if strategy == "TOKEN" else strategy)
