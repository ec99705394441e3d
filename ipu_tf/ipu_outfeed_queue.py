"""`IPUOutfeedQueue`: returns results of loops on the device to the host."""

from __future__ import annotations

import enum
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._config.flags import flags
from ipu_tf._config.state import configured_devices, on_reset
from ipu_tf._state.numbers import next_number
from ipu_tf._tracing.construction_errors import defer
from ipu_tf._tracing.former_queue_arguments import takes_former_arguments
from ipu_tf._tracing.queue_arguments import OUTFEED, checked_ordinal
from ipu_tf._tracing.unconverted import do_not_convert
from ipu_tf.device.feeds import queues
from ipu_tf.device.feeds.outfeed import Outfeed
from ipu_tf.device.feeds.synthetic import TransferKind
from ipu_tf.lowering.tensorflow import tf_values
from ipu_tf.lowering.tensorflow.host_op import host_op
from ipu_tf.lowering.tensorflow.markers import enqueue_marker


class IPUOutfeedMode(enum.Enum):
    """Mode of an outfeed: dequeue every element since the last dequeue, or only the newest."""

    ALL = "all"
    LAST = "get_last"


class IPUOutfeedQueue:
    """Collects elements that programs enqueue, for the host to dequeue.

    Args:
        outfeed_mode: `ALL` (default) keeps every row until it is dequeued; `LAST` keeps the newest.
        device_ordinal: the `/device:IPU:<ordinal>` whose programs enqueue; default as for `IPUInfeedQueue`.
        buffer_depth: rows the hardware would buffer, at least 1; recorded, without effect.
        optimise_latency: recorded, without effect.

    Raises:
        TypeError: for an argument of another type.
        ValueError: for a bad mode, ordinal or depth.

    Example:
        >>> from ipu_tf.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
        >>> IPUOutfeedQueue(outfeed_mode=IPUOutfeedMode.LAST).enqueued
        False
    """

    @takes_former_arguments("IPUOutfeedQueue", 0, IPUOutfeedMode)
    def __init__(
        self,
        outfeed_mode: IPUOutfeedMode | None = None,
        device_ordinal: int | None = None,
        buffer_depth: int = 3,
        optimise_latency: bool = False,
    ) -> None:
        if outfeed_mode is not None and not isinstance(outfeed_mode, IPUOutfeedMode):
            raise ValueError(
                f"Expected `outfeed_mode` value to be of `ipu_outfeed_queue.IPUOutfeedMode` type, but is "
                f"{outfeed_mode}."
            )
        OUTFEED.record(OUTFEED.check({"buffer_depth": buffer_depth, "optimise_latency": optimise_latency}))
        self._mode = outfeed_mode or IPUOutfeedMode.ALL
        self._device_ordinal = checked_ordinal(device_ordinal)
        self._id = f"outfeed_{next_number('outfeed')}"
        self._structure: Any = None
        self._specs: list[tf.TensorSpec] | None = None
        # The graphs with an enqueue, and those around them.
        self._graphs: weakref.WeakSet[Any] = weakref.WeakSet()
        self._thread: int | None = None
        queues.add_outfeed(Outfeed(self._id, last_only=self._mode is IPUOutfeedMode.LAST))

    @property
    def enqueued(self) -> bool:
        """Returns whether the current graph, or a program in it, enqueues here; in other threads, whether any does."""
        if self._specs is None or threading.get_ident() != self._thread:
            return self._specs is not None
        return tf.compat.v1.get_default_graph() in self._graphs

    @property
    def outfeed_mode(self) -> IPUOutfeedMode:
        """Returns whether the queue keeps every element or only the newest."""
        return self._mode

    @property
    def deleter(self) -> tf.Operation | None:
        """Frees the queue. An op to run in a graph; done at once if eager.

        Raises:
            tf.errors.NotFoundError: if the queue is deleted already.
        """
        if tf_values.executing_eagerly():
            self._delete()
            return None
        return host_op(self._delete, [], [], f"{self._id}_deleter").operation

    @do_not_convert
    def enqueue(self, tensors: Any) -> tf.Operation:
        """Enqueues one element, inside a program. At most once a program.

        Args:
            tensors: a tensor, or a list, tuple or dictionary of them; a dequeue gives the same structure.

        Returns:
            The op that enqueues. Return it from the loop's body, or make something depend on it.

        Raises:
            ValueError: for a second enqueue in the same program.
            tf.errors.InvalidArgumentError: if a tensor has a dimension of size 0; in a graph, when the program runs.
            tf.errors.FailedPreconditionError: if another program enqueued rows of other shapes; while its rows wait,
                also for another structure.
            RuntimeError: outside of a program.
        """
        if tf_values.executing_eagerly():
            raise RuntimeError(
                "An outfeed is enqueued by a program on the device. Call `enqueue` inside a function given to "
                "`strategy.run` or `ipu_compiler.compile`. Received: a call in eager mode."
            )
        self._check_first_enqueue()
        flat = [tf.convert_to_tensor(tensor) for tensor in tf.nest.flatten(tensors)]
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in flat]
        structure = tf.nest.map_structure(lambda _: None, tensors)
        self._check_sizes(specs)
        # What a program of which nothing came declared, such as one whose trace failed, binds no other.
        if self._specs is not None and not queues.is_unused(self._id):
            self._check_row(specs, structure)
        self._specs, self._structure = specs, structure
        self._record_graphs()
        return enqueue_marker(self._id, flat)

    def dequeue(self, wait_for_completion: bool = False) -> Any:
        """Dequeues what was enqueued, in the structure it was enqueued in.

        Mode `ALL`: every tensor has a leading dimension, one row an iteration since the last dequeue; the queue is
        empty afterwards. Mode `LAST`: the newest row, without that dimension.

        Args:
            wait_for_completion: wait until running programs have finished. Programs of the calling thread always
                have.

        In eager mode, before any program enqueues, it gives an empty list.

        Raises:
            ValueError: in a graph, if none of its programs enqueues to this queue.
            tf.errors.FailedPreconditionError: mode `LAST`, before the first row, or with synthetic outfeeds.
        """
        eager = tf_values.executing_eagerly()
        if self._specs is None and eager:
            return []
        if not (eager or self.enqueued):
            raise ValueError(
                "Trying to dequeue an outfeed which has not been enqueued. Build the program that enqueues "
                "first, then dequeue."
            )
        assert self._specs is not None
        if eager:
            return self._pack([tf.convert_to_tensor(array) for array in self._rows(wait_for_completion)])
        last = self._mode is IPUOutfeedMode.LAST
        outputs = [self._dequeued_spec(spec, last) for spec in self._specs]
        op = host_op(lambda: self._rows(wait_for_completion), [], outputs, f"{self._id}_dequeue")
        return self._pack(op.results)

    def _dequeued_spec(self, spec: tf.TensorSpec, last: bool) -> tf.TensorSpec:
        """Spec of a dequeued tensor in a graph: elements of several replicas have one more dimension."""
        devices = configured_devices()
        ordinal = self._device_ordinal or 0
        if ordinal < len(devices) and devices[ordinal].num_ipus > 1:
            return tf.TensorSpec(None, spec.dtype)
        return spec if last else tf.TensorSpec([None, *spec.shape], spec.dtype)

    def __iter__(self) -> Iterator[Any]:
        """Dequeues buffered elements one by one, until none is left.

        Raises:
            RuntimeError: outside eager mode, or in mode `LAST`.
        """
        if not tf_values.executing_eagerly():
            raise RuntimeError("IPUOutfeedQueue can only be iterated over in eager mode.")
        if self._mode is not IPUOutfeedMode.ALL:
            raise RuntimeError(
                "IPUOutfeedQueue can only be iterated over if the `outfeed_mode` is set to 'IPUOutfeedMode.ALL'."
            )
        return IPUOutfeedQueueIterator(self)

    def _pop(self) -> Any:
        row = None if self._has_no_transfer() else queues.outfeed(self._id).pop()
        return None if row is None else self._pack([tf.convert_to_tensor(array) for array in row])

    def _rows(self, wait: bool) -> Sequence[np.ndarray]:
        outfeed = queues.outfeed(self._id)
        if wait:
            queues.wait_for_programs()
        assert self._specs is not None
        if self._has_no_transfer():
            outfeed.drain()
        if self._mode is IPUOutfeedMode.ALL:
            rows = outfeed.drain()
            if rows is not None:
                return rows
            leading = (0,) if outfeed.replicas in (None, 1) else (0, outfeed.replicas)  # to go behind other rows
            return [np.zeros((*leading, *spec.shape), spec.dtype.as_numpy_dtype) for spec in self._specs]
        newest = outfeed.newest()
        if newest is None:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                "Trying to get the last value from an outfeed queue before it was executed. Make sure the outfeed "
                "dequeue TensorFlow operation is executed after the enqueue to the outfeed has completed.",
            )
        return newest

    def _has_no_transfer(self) -> bool:
        """Returns whether TF_POPLAR_FLAGS disables transfers to the host; raises in mode `LAST`."""
        nothing = flags().synthetic_data.uses(TransferKind.OUTFEED)
        if nothing and self._mode is IPUOutfeedMode.LAST:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                "Trying to get the last value from an outfeed queue when using synthethic data. This is not supported.",
            )
        return nothing

    def _pack(self, flat: Sequence[Any]) -> Any:
        return tf.nest.pack_sequence_as(self._structure, list(flat))

    @staticmethod
    def _check_sizes(specs: list[tf.TensorSpec]) -> None:
        for spec in specs:
            if 0 in spec.shape.as_list():
                text = (
                    "Detected an input tensor to an outfeed queue with a dimension of size 0. Please remove it from "
                    "the inputs."
                )
                defer(tf.errors.InvalidArgumentError(None, None, text))

    def _check_row(self, specs: list[tf.TensorSpec], structure: Any) -> None:
        """Checks that rows are as those of programs that ran; where rows wait, their structure as well."""
        if self._specs != specs:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                f"Outfeed with id='{self._id}' already exists but with a different tensor shape or replication factor. "
                f"Consider changing the `feed_name` in IPUOutfeedQueue. It has {self._specs}. Received: {specs}.",
            )
        waiting = self._mode is IPUOutfeedMode.ALL and len(queues.outfeed(self._id)) > 0
        if waiting and self._structure != structure:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                f"Outfeed with id='{self._id}' has rows of another structure, which were not dequeued: "
                f"{self._pack(specs)}. Received: {tf.nest.pack_sequence_as(structure, specs)}. Dequeue them first, or "
                "use an outfeed of its own.",
            )

    def _check_first_enqueue(self) -> None:
        around = _graphs_around()
        # In TF2 all functions are in one outermost graph, and each may enqueue.
        programs = around[:1] if tf.compat.v1.executing_eagerly_outside_functions() else [around[0], around[-1]]
        if any(graph in self._graphs for graph in programs):
            raise ValueError("An outfeed can only be enqueued once.")

    def _record_graphs(self) -> None:
        self._thread = threading.get_ident()
        for graph in _graphs_around():
            self._graphs.add(graph)

    def _delete(self) -> None:
        if not queues.remove(self._id):
            raise tf.errors.NotFoundError(None, None, f"Outfeed with id='{self._id}' does not exist (any more).")


def _graphs_around() -> list[Any]:
    """The current graph and those it is nested in, from the inside out."""
    graphs = [tf.compat.v1.get_default_graph()]
    while (outer := getattr(graphs[-1], "outer_graph", None)) is not None:
        graphs.append(outer)
    return graphs


class ScopedIPUOutfeedQueue(IPUOutfeedQueue):
    """An `IPUOutfeedQueue` that is freed together with this object.

    Args:
        outfeed_mode: as for `IPUOutfeedQueue`.
        device_ordinal: as for `IPUOutfeedQueue`.

    Raises:
        RuntimeError: outside eager mode.
    """

    def __init__(self, outfeed_mode: IPUOutfeedMode | None = None, device_ordinal: int | None = None) -> None:
        if not tf_values.executing_eagerly():
            raise RuntimeError("ScopedIPUOutfeedQueue can only be created in eager mode")
        super().__init__(outfeed_mode, device_ordinal)
        weakref.finalize(self, queues.remove, self._id)


class IPUOutfeedQueueIterator:
    """Dequeues the buffered elements of an outfeed one by one."""

    def __init__(self, outfeed_queue: IPUOutfeedQueue) -> None:
        self._queue = outfeed_queue

    def __iter__(self) -> IPUOutfeedQueueIterator:
        return self

    def __next__(self) -> Any:
        row = self._queue._pop()  # noqa: SLF001 - one class in two halves
        if row is None:
            raise StopIteration
        return row


# Devices that are configured anew may have another number of replicas.
on_reset(queues.reset_replica_counts)
