"""Configuration by its older module name, and small helpers around programs."""

from __future__ import annotations

import tensorflow as tf

from ipu_tf.config import (
    DeviceConnectionType,
    ExecutionProfileType,
    IPUConfig,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    configure_ipu_system,
    get_ipu_config,
    running_on_ipu_model,
)
from ipu_tf.config_state import require_device
from ipu_tf.device import seed as device_seed
from ipu_tf.ipu_strategy import device_ordinal
from ipu_tf.lowering import tf_private
from ipu_tf.lowering.host_op import host_op

__all__ = [
    "DeviceConnectionType",
    "ExecutionProfileType",
    "IPUConfig",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "configure_ipu_system",
    "get_ipu_config",
    "get_num_of_ipus_in_device",
    "move_variable_initialization_to_cpu",
    "reset_ipu_seed",
    "running_on_ipu_model",
]


def get_num_of_ipus_in_device(ipu_device: str, device: str = "cpu") -> int:
    """How many emulated IPUs a device has.

    Args:
        ipu_device: e.g. `/device:IPU:0`.
        device: the host device; accepted for compatibility.

    Raises:
        tf.errors.FailedPreconditionError: if no device is configured.
        ValueError: if `ipu_device` is not an IPU.
    """
    return require_device(device_ordinal(ipu_device)).num_ipus


def reset_ipu_seed(
    seed: int,
    device: str = "/device:IPU:0",
    cpu_device: str = "cpu",
    experimental_identical_replicas: bool = False,
) -> tf.Operation | None:
    """Starts a device's sequence of random numbers again, for stateful random ops such as `tf.random.normal`.

    Args:
        seed: where to start; the same seed gives the same numbers.
        device: the device.
        cpu_device: the host device; accepted for compatibility.
        experimental_identical_replicas: accepted; with one replica there is nothing to tell apart.

    Returns:
        An op to run, in a graph; None in eager mode, where it is done at once.
    """
    ordinal = device_ordinal(device)
    if tf_private.executing_eagerly():
        device_seed.reset_seed(seed, ordinal)
        return None
    return host_op(lambda: device_seed.reset_seed(seed, ordinal), [], [], "reset_ipu_seed").operation


def move_variable_initialization_to_cpu(graph: tf.Graph | None = None) -> None:
    """Makes variables initialise on the host. They always do here: nothing is left to move.

    Args:
        graph: the graph; by default the current one.
    """
