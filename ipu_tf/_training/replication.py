"""Computes the number of replicas from the IPUs of a device and of one replica.

4 IPUs, a program on shards 0 and 1:    IPU 0, 1: replica 0        IPU 2, 3: replica 1
"""

from __future__ import annotations

import contextlib
import dataclasses

import tensorflow as tf

from ipu_tf._config.configured_numerics import configured_numerics
from ipu_tf._config.state import configured_devices, use_device
from ipu_tf.device.instances.across import first_replica, program_instances
from ipu_tf.device.instances.group import EQUAL_DATA as EQUAL_DATA
from ipu_tf.lowering.programs.program_target import Target
from ipu_tf.lowering.tensorflow import tf_graphs
from ipu_tf.lowering.tensorflow.shards import shard_count_of


def target_of(ordinal: int, graph: tf.Graph) -> Target:
    """Returns the target of a program that is compiled from a traced graph: its device, replicas and numerics.

    As many replicas as fit on the IPUs of `/device:IPU:<ordinal>`: the graph's shards say how many one takes.

    Args:
        ordinal: of the device.
        graph: of the traced function, whose ops are on shards.

    Raises:
        tf.errors.FailedPreconditionError: if nothing is configured.
        tf.errors.InvalidArgumentError: if there is no device of that ordinal.
        tf.errors.InternalError: if the program's shards do not divide the device's IPUs, or groups of batch
            normalisation do not divide the replicas.
    """
    return target(ordinal, shard_count_of(graph))


def target(ordinal: int, shards: int = 1, overflow_shows: bool = False) -> Target:
    """Returns the target of a program that uses so many shards; otherwise as `target_of`.

    Args:
        ordinal: of the device.
        shards: how many IPUs one replica uses.
        overflow_shows: whether float16 that overflows is NaN, whatever the configuration says.
    """
    replicas = replicas_that_fit(use_device(ordinal).num_ipus, shards)
    numerics = configured_numerics()
    if overflow_shows:
        numerics = dataclasses.replace(numerics, nan_on_overflow=True)
    instances = instance_count()
    _check_norm_groups(replicas * instances, numerics.norm_group)
    return Target(ordinal, replicas, numerics, instances)


def traced_for(ordinal: int, reduces: bool = True) -> contextlib.AbstractContextManager[None]:
    """Context in which the functions of a program are traced for its device, as that is configured now.

    Traces depend on it: whether there are replicas to reduce over, which queues iterators feed.

    Args:
        ordinal: of the device; nothing needs to be configured yet.
        reduces: whether `reduce` reduces over replicas.
    """
    devices = configured_devices()
    ipus = devices[ordinal].num_ipus if ordinal < len(devices) else 1
    return tf_graphs.function_traces_for((ordinal, ipus, instance_count(), configured_numerics().norm_group, reduces))


def instance_count() -> int:
    """Returns how many instances run programs together, as the device is configured now."""
    return program_instances()


def instance_index() -> int:
    """Returns which of these instances this process is."""
    return first_replica(1)


def check_target(compiled_for: Target, shards: int, overflow_shows: bool) -> None:
    """Checks that a step still runs on the device it was compiled for; the arguments are as for `target`.

    Raises:
        tf.errors.FailedPreconditionError: if the device has other IPUs or settings now, or none is configured.
    """
    now = target(compiled_for.ordinal, shards, overflow_shows)
    if now != compiled_for:
        raise tf.errors.FailedPreconditionError(
            None,
            None,
            f"The step was compiled for {compiled_for}, and the device is configured as {now} now. Make the loop "
            "again.",
        )


def replicas_that_fit(ipus: int, shards: int) -> int:
    """Returns the number of replicas of a program that fit on a device.

    The IPUs of a replica are a power of two, as they are on a machine.

    Args:
        ipus: IPUs of the device.
        shards: the highest shard that the program uses, plus one.

    Raises:
        tf.errors.InternalError: if they do not fit evenly.

    Example:
        >>> replicas_that_fit(8, 3)
        2
    """
    needed = 1 << (shards - 1).bit_length()
    if ipus % needed:
        raise tf.errors.InternalError(
            None,
            None,
            f"Trying to compile a graph for an IPU device with {ipus} IPUs and {shards} shards. The number of shards "
            "needs to divide the number of IPUs.",
        )
    return ipus // needed


def _check_norm_groups(replicas: int, group: int) -> None:
    """Checks that the groups of batch normalisation divide the replicas, as they have to on IPUs."""
    if replicas % group:
        raise tf.errors.InternalError(
            None,
            None,
            f"The number of replicas ({replicas}) must be divisible by distributed_batch_norm_replica_group_size "
            f"({group}).",
        )
