"""Describes the ops of a session run for clustering: device, dependencies."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence

import tensorflow as tf

from ipu_tf._state.once import first_time
from ipu_tf.lowering.tensorflow import tf_graphs, tf_private, tf_values
from ipu_tf.lowering.tensorflow.clustering import SessionOp
from ipu_tf.lowering.tensorflow.op_lines import location_of

#: Ops of the host wherever they are placed: they hold or feed what lives there, or are Python.
OF_THE_HOST = frozenset(
    {
        "EagerPyFunc",
        "IsVariableInitialized",
        "Placeholder",
        "PlaceholderWithDefault",
        "PyFunc",
        "PyFuncStateless",
        "VarHandleOp",
        "VarIsInitializedOp",
        "VariableV2",
    }
)
#: Ops that move data and compute nothing.
MOVING = frozenset({"AssignVariableOp", "Const", "Identity", "IdentityN", "NoOp", "ReadVariableOp", "StopGradient"})
#: What may be done to a reference variable, whose value is on the host.
_OF_REFERENCES = frozenset({"Assign", "Identity", "IsVariableInitialized", "SaveV2", "Save"})
_CALLS = frozenset(
    {"Case", "If", "PartitionedCall", "StatefulPartitionedCall", "StatelessIf", "StatelessWhile", "While"}
)
#: They are about strings, and of the host on every device of TensorFlow's.
_FILES_AND_LOGS = re.compile("Assert|Checkpoint|Const|Filename|Print|Restore|Save|Summary")
_MARKER = "XlaCustomCallV2"
_HANDED_ON = ("Enter", "Identity", "Merge", "NextIteration", "Switch")


def ordinal_of(operation: tf.Operation) -> int | None:
    """Returns the ordinal of the IPU that an op is placed on; None for another device.

    An op without a device is placed with the variables that it uses; a call, loop or branch with the ops within it.

    Raises:
        ValueError: for a call, loop or branch with ops on several IPUs.
    """
    devices = [placed_on(operation)]
    if operation.type in _CALLS and not is_ipu(devices[0]):
        devices = ipus_within(operation)
    elif not devices[0]:
        devices = [_maker(tensor).device for tensor in operation.inputs if tensor.dtype == tf.resource]
    ordinals = list(dict.fromkeys(map(_ordinal, filter(is_ipu, devices))))
    if operation.type in _CALLS and len(ordinals) > 1:
        raise ValueError(
            f"`{operation.name}` ({operation.type}) has ops on several IPUs: {', '.join(devices)}. It runs as one "
            f"program: place what is in it on one IPU.\n{location_of(operation)}"
        )
    return ordinals[0] if ordinals else None


def _ordinal(device: str) -> int:
    return int(tf.DeviceSpec.from_string(device).device_index or 0)


def ipus_within(operation: tf.Operation) -> list[str]:
    """Returns the IPUs that ops in a call, loop or branch are placed on and compute on; none for another op."""
    graphs = tf_graphs.called_graphs(operation) if operation.type in _CALLS else ()
    return list(dict.fromkeys(device for graph in graphs for device in _ipus_of(graph)))


def _ipus_of(graph: tf.Graph) -> list[str]:
    known = tf_graphs.graph_dict(graph, "ipus")
    if "devices" not in known:
        inside = tf_graphs.operations_within(graph)
        known["devices"] = list(dict.fromkeys(each.device for each in inside if computes_on_ipu(each)))
    devices: list[str] = known["devices"]
    return devices


def placed_on(operation: tf.Operation) -> str:
    """Returns the device string of an op; empty if it has none.

    An op that only the device knows goes to the first IPU: TensorFlow places an op where there is a kernel for it.
    """
    return operation.device or ("/device:IPU:0" if operation.type == _MARKER else "")


def is_ipu(device: str) -> bool:
    """Returns whether a device string names an IPU."""
    return "IPU" in device and tf.DeviceSpec.from_string(device).device_type == "IPU"


def needed(
    fetches: Sequence[tf.Tensor], targets: Sequence[tf.Operation], fed: Collection[str]
) -> dict[str, tf.Operation]:
    """Returns the ops that a session run needs for its fetches and targets, by name, in creation order.

    Args:
        fetches: the tensors.
        targets: the ops.
        fed: names of tensors that are given; what only they need does not run.
    """
    found: dict[str, tf.Operation] = {}
    waiting = [*targets, *(tensor.op for tensor in fetches if tensor.name not in fed)]
    while waiting:
        operation = waiting.pop()
        if operation.name not in found:
            found[operation.name] = operation
            waiting += [tensor.op for tensor in operation.inputs if tensor.name not in fed]
            waiting += operation.control_inputs
    return dict(sorted(found.items(), key=lambda item: tf_graphs.creation_number(item[1])))


def node(operation: tf.Operation, fed: Collection[str]) -> SessionOp:
    """Converts an op to a node of the clustering.

    Raises:
        ValueError: for a reference variable that an op on an IPU would change.
    """
    before = dict.fromkeys(tensor.op.name for tensor in operation.inputs if tensor.name not in fed)
    before.update((control.name, None) for control in operation.control_inputs)
    ordinal = ordinal_of(operation)
    on_host = ordinal is not None and _on_host(operation)
    return SessionOp(
        before=tuple(before),
        ordinal=None if on_host else ordinal,
        free=not (on_host or placed_on(operation)),
        computes=operation.type not in MOVING,
        initialises=_initialises(operation),
        group=tf_graphs.control_flow_group(operation),
    )


def computes_on_ipu(operation: tf.Operation) -> bool:
    """Returns whether an op itself is placed on an IPU and computes there."""
    return is_ipu(operation.device) and operation.type not in MOVING and not _on_host(operation)


def say_on_host(op_type: str) -> None:
    """Logs, once for each type of op, that an op on strings which is placed on an IPU runs on the host."""
    if not _FILES_AND_LOGS.search(op_type) and first_time("op on strings", op_type):
        logging.getLogger("ipu_tf").warning(
            "ipu_tf: %s is placed on an IPU and works on strings, which the device does not have: it runs on the host. "
            "Place it outside of the IPU's scope.",
            op_type,
        )


def is_constant(operation: tf.Operation) -> bool:
    """Returns whether an op is a constant, which is copied to wherever its value is used."""
    return operation.type == "Const" and not operation.control_inputs


def _on_host(operation: tf.Operation) -> bool:
    if is_constant(operation) or operation.type in OF_THE_HOST:
        return True
    if any(tf_values.is_reference(tensor) for tensor in operation.inputs):
        if operation.type not in _OF_REFERENCES:
            raise ValueError(
                f"`{operation.name}` ({operation.type}) is placed on {operation.device} and changes a reference "
                "variable. The device only knows resource variables: make it with use_resource=True, or call "
                f"tf.compat.v1.enable_resource_variables().\n{location_of(operation)}"
            )
        return True
    tensors = (*operation.inputs, *operation.outputs)
    if any(tensor.dtype == tf.string for tensor in tensors):
        say_on_host(operation.type)
        return True
    # Lists of tensors are the device's, datasets and their iterators are not.
    return any(map(_is_host_only, tensors)) and not tf_private.compiles(operation.type)


def _is_host_only(tensor: tf.Tensor) -> bool:
    """Returns whether a tensor is neither numeric nor a variable, so that it stays on the host."""
    if tensor.dtype == tf.resource:
        return _maker(tensor).type != "VarHandleOp"
    return bool(tensor.dtype == tf.variant)


def _maker(handle: tf.Tensor) -> tf.Operation:
    """Finds the op that creates a resource, through TensorFlow 1's loops and branches."""
    while handle.op.type in _HANDED_ON and handle.op.inputs:
        handle = handle.op.inputs[0]
    return handle.op


def _initialises(operation: tf.Operation) -> bool:
    """Returns whether an op assigns a variable's initial value."""
    if operation.type not in ("Assign", "AssignVariableOp"):
        return False
    return operation.name == f"{operation.inputs[0].op.name}/Assign"
