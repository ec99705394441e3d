"""Rewrites `Session.run` so that ops placed on an IPU run as device programs.

    fetches, feeds ──► ops that are needed ──► clusters ──► one host op for each program, copies of the host
                                                            ops that read its results ──► other fetches

It happens once for each set of fetches and feeds of a graph; the graph keeps the result.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf.device.op_locations import with_text
from ipu_tf.lowering.programs.graph_op import embed
from ipu_tf.lowering.programs.program_target import Target
from ipu_tf.lowering.tensorflow import tf_graphs, tf_private, tf_values
from ipu_tf.lowering.tensorflow.clustering import Cluster, MisplacedOp, schedule_clusters
from ipu_tf.lowering.tensorflow.graph_pruning import part_of
from ipu_tf.lowering.tensorflow.op_lines import location_of
from ipu_tf.lowering.tensorflow.session_graph import ipus_within, is_constant, is_ipu, needed, node, placed_on

Where = Callable[[int, int], Target]
"""From the ordinal of an IPU device and a number of shards to where a program runs; raises if it cannot."""

_lock = threading.RLock()


@dataclasses.dataclass(frozen=True)
class SessionRun:
    """Fetches and target ops of a session run.

    Attributes:
        fetches: the tensors whose values it gives.
        targets: the ops that it runs beside them.
    """

    fetches: tuple[tf.Tensor, ...]
    targets: tuple[tf.Operation, ...]


def rewritten(wanted: SessionRun, fed: Collection[str], where: Where) -> SessionRun | None:
    """Rewrites a session run: replaces ops placed on IPUs by device programs.

    Args:
        wanted: what the session was asked for, of one graph.
        fed: names of the tensors that are fed.
        where: called each time before a program runs.

    Returns:
        None where nothing that computes is placed on an IPU.

    Raises:
        ValueError: for ops on an IPU that cannot become a program.
    """
    graph = (*wanted.fetches, *wanted.targets)[0].graph
    key = (tuple(t.name for t in wanted.fetches), tuple(op.name for op in wanted.targets), frozenset(fed))
    with _lock:
        known = tf_graphs.graph_dict(graph, "session_runs")
        if key not in known:
            known[key] = (
                _rewritten_run(graph, wanted, frozenset(fed), where) if any(map(is_ipu, devices_named(graph))) else None
            )
        return known[key]


def check_devices(
    session: Any, fetches: Sequence[tf.Tensor], targets: Sequence[tf.Operation], fed: Collection[str]
) -> None:
    """Checks that placed devices other than IPUs exist, as TensorFlow does without soft placement.

    Raises:
        tf.errors.InvalidArgumentError: if an op that has to run is placed on a device that is not there.
    """
    named = devices_named(session.graph)
    others = {device for device in named if not is_ipu(device) and _type(device) not in (None, "CPU")}
    if not others:
        return
    there = {_place(device.name) for device in session.list_devices()}
    for operation in needed(fetches, targets, fed).values():
        if operation.device in others and _place(operation.device) not in there:
            raise tf.errors.InvalidArgumentError(
                operation.node_def,
                operation,
                f"Cannot assign a device for operation {operation.name}: it was explicitly assigned to "
                f"{operation.device}, which is not among the devices of the session. Place it on a device that is "
                f"there, or give the session ConfigProto(allow_soft_placement=True).\n{location_of(operation)}",
            )


def _type(device: str) -> str | None:
    return tf.DeviceSpec.from_string(device).device_type


def _place(device: str) -> tuple[str | None, int]:
    spec = tf.DeviceSpec.from_string(device)
    return spec.device_type, int(spec.device_index or 0)


def devices_named(graph: tf.Graph) -> frozenset[str]:
    """Returns the device strings that ops of a graph are placed on, and IPUs in loops; examines every op once."""
    seen = tf_graphs.graph_dict(graph, "devices_seen")
    count = tf_graphs.operation_count(graph)
    if count > seen.get("count", 0):
        made = graph.get_operations()[seen.get("count", 0) :]
        named = {device for operation in made for device in (placed_on(operation), *ipus_within(operation))}
        seen["count"], seen["devices"] = count, seen.get("devices", frozenset()) | named - {""}
    return seen.get("devices", frozenset())


def _rewritten_run(graph: tf.Graph, wanted: SessionRun, fed: frozenset[str], where: Where) -> SessionRun | None:
    operations = needed(wanted.fetches, wanted.targets, fed)
    try:
        found = schedule_clusters({name: node(operation, fed) for name, operation in operations.items()})
    except MisplacedOp as error:
        raise with_text(error, str(location_of(operations[error.op]))) from None
    if not found.clusters:
        return None
    with tf_graphs.extending(graph):
        rewriting = _GraphRewriter(operations, fed, where)
        rewriting.read_outside(wanted.fetches)
        phases = sorted({cluster.phase for cluster in found.clusters} | set(found.dependents))
        for phase in phases:
            rewriting.copy_on_host(found.dependents.get(phase, ()))
            for cluster in found.clusters:
                if cluster.phase == phase:
                    rewriting.make_program(cluster)
        return SessionRun(
            tuple(rewriting.tensor(tensor) for tensor in wanted.fetches),
            tuple(rewriting.operation(operation) for operation in wanted.targets),
        )


class _GraphRewriter:
    """Rewrites a graph: replaces the ops of one cluster after the other by device programs.

    Args:
        operations: those that are needed, by name.
        fed: names of the tensors that are fed.
        where: says where a program runs.
    """

    def __init__(self, operations: Mapping[str, tf.Operation], fed: frozenset[str], where: Where) -> None:
        self._operations = operations
        self._fed = fed
        self._where = where
        self._tensors: dict[str, tf.Tensor] = {}
        self._done: dict[str, tf.Operation] = {}
        self._readers: dict[str, set[str]] = {}
        self._fetched: set[str] = set()
        for operation in operations.values():
            for tensor in operation.inputs:
                self._readers.setdefault(tensor.name, set()).add(operation.name)

    def read_outside(self, tensors: Sequence[tf.Tensor]) -> None:
        """Records tensors that are fetched, whatever ops read them."""
        self._fetched |= {tensor.name for tensor in tensors}

    def tensor(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns the tensor that replaces a tensor."""
        return self._tensors.get(tensor.name, tensor)

    def operation(self, operation: tf.Operation) -> tf.Operation:
        """Returns the op that replaces an op."""
        return self._done.get(operation.name, operation)

    def make_program(self, cluster: Cluster) -> None:
        """Adds a device program that replaces the ops of a cluster."""
        inside = {name: self._operations[name] for name in cluster.names}
        inputs = self._inputs(inside)
        outputs = [t for op in inside.values() for t in op.outputs if self._read_outside(t, inside)]
        constants = [t.op for op in inside.values() for t in op.inputs if is_constant(t.op) and t.name not in self._fed]
        graph = tf.compat.v1.get_default_graph()
        nodes = part_of(graph.as_graph_def(), {*inside, *(op.name for op in constants)}, True)
        given = {name: tensor for name, tensor in inputs.items() if tensor.dtype == tf.resource}
        values = {name: _value(tensor) for name, tensor in inputs.items() if tensor.dtype != tf.resource}

        def computation(*tensors: tf.Tensor) -> list[tf.Tensor]:
            fed = {**given, **dict(zip(values, tensors, strict=True))}
            results = tf_private.import_graph(nodes, fed, [tensor.name for tensor in outputs], graph)
            return results or [tf.constant(0)]

        controls = {c.name: self.operation(c) for op in inside.values() for c in op.control_inputs}
        outside = [operation for name, operation in controls.items() if name not in inside]
        before = functools.partial(self._where, cluster.ordinal)
        with tf.control_dependencies(outside):
            embedded = embed(computation, list(values.values()), f"ipu_{cluster.ordinal}_program", before)
        self._tensors.update((old.name, new) for old, new in zip(outputs, embedded.outputs, strict=False))
        self._done.update(dict.fromkeys(inside, embedded.operation))

    def copy_on_host(self, names: Sequence[str]) -> None:
        """Copies host ops that read results of programs."""
        if not names:
            return
        copied = {name: self._operations[name] for name in names}
        nodes = part_of(tf.compat.v1.get_default_graph().as_graph_def(), set(copied), False)
        nodes.library.Clear()  # of copies of its functions the graph would not know what TensorFlow knows of them
        outer: dict[str, tf.Tensor] = {}
        for operation in copied.values():
            for tensor in operation.inputs:
                if tensor.op.name not in copied or tensor.name in self._fed:
                    outer[tensor.name] = self.tensor(tensor)
            for control in operation.control_inputs:
                if control.name not in copied:
                    outer[f"^{control.name}"] = self._after(self.operation(control))
        results = tf.graph_util.import_graph_def(nodes, outer, list(copied), name="after_ipu")
        for (name, old), new in zip(copied.items(), results, strict=True):
            self._done[name] = new
            pairs = zip(old.outputs, new.outputs, strict=True)
            self._tensors.update((a.name, b) for a, b in pairs if a.name not in self._fed)

    def _inputs(self, inside: Mapping[str, tf.Operation]) -> dict[str, tf.Tensor]:
        """Returns the inputs of a set of ops from outside of it, by tensor name."""
        found: dict[str, tf.Tensor] = {}
        for operation in inside.values():
            for tensor in operation.inputs:
                fed = tensor.name in self._fed
                if fed or (tensor.op.name not in inside and not is_constant(tensor.op)):
                    found[tensor.name] = tensor if fed else self.tensor(tensor)
        return found

    def _read_outside(self, tensor: tf.Tensor, inside: Mapping[str, Any]) -> bool:
        if tensor.name in self._fed:
            return False
        return tensor.name in self._fetched or any(name not in inside for name in self._readers.get(tensor.name, ()))

    def _after(self, operation: tf.Operation) -> tf.Tensor:
        """Returns a tensor that is computed after an op has run."""
        if operation.outputs:
            return operation.outputs[0]
        with tf.control_dependencies([operation]):
            return tf.constant(0)


def _value(tensor: tf.Tensor) -> tf.Tensor:
    """Returns a tensor's value, also that of a reference variable."""
    with tf.device("/device:CPU:0"):
        return tf.identity(tensor) if tf_values.is_reference(tensor) else tensor
