"""Converts device errors to TensorFlow errors, as Graphcore's interface raises them."""

from __future__ import annotations

import tensorflow as tf

from ipu_tf.device.errors import (
    AccumulationCountError,
    AccumulationOutsideLoopError,
    InfeedExhausted,
    InfeedInUse,
    InfeedReplicaMismatch,
    InfeedTimeout,
    OutfeedReplicaMismatch,
    QueueReplicationError,
    ReplicaGroupError,
    UnknownQueue,
)
from ipu_tf.device.feeds.connection_type import DeviceNotAttachedError
from ipu_tf.device.feeds.outfeed import OutfeedRowMismatch
from ipu_tf.device.memory.claims import VariablesInUseError
from ipu_tf.device.memory.host_tables import HostTableExists, HostTableIndexError, UnknownHostTable
from ipu_tf.device.numerics.assertions import AssertionFailed
from ipu_tf.device.numerics.exceptions import FloatingPointExceptionError
from ipu_tf.lowering.programs.check_messages import check_message

#: Device errors and the TensorFlow error of each, with the same message.
_TENSORFLOW_ERRORS: tuple[tuple[tuple[type[BaseException], ...], type[tf.errors.OpError]], ...] = (
    ((InfeedExhausted,), tf.errors.OutOfRangeError),
    ((InfeedTimeout,), tf.errors.DeadlineExceededError),
    ((DeviceNotAttachedError, HostTableIndexError, ReplicaGroupError), tf.errors.InvalidArgumentError),
    ((FloatingPointExceptionError,), tf.errors.InternalError),
    ((UnknownQueue,), tf.errors.NotFoundError),
    ((AccumulationCountError, AccumulationOutsideLoopError), tf.errors.FailedPreconditionError),
    ((HostTableExists, UnknownHostTable), tf.errors.FailedPreconditionError),
    (
        (InfeedReplicaMismatch, OutfeedReplicaMismatch, OutfeedRowMismatch, QueueReplicationError),
        tf.errors.FailedPreconditionError,
    ),
    ((InfeedInUse, VariablesInUseError), tf.errors.FailedPreconditionError),
)


def to_tensorflow_error(error: BaseException) -> BaseException:
    """Converts a device error to a TensorFlow error; other exceptions are unchanged."""
    if isinstance(error, AssertionFailed):
        return tf.errors.InvalidArgumentError(None, None, check_message(error))
    if isinstance(error, UnknownQueue) and error.kind == "infeed":
        return tf.errors.FailedPreconditionError(
            None,
            None,
            "Trying to access an infeed dataset iterator which has not been created. Did you initialize the "
            f"infeed_queue '{error.name}' ?",
        )
    for kinds, tensorflow_error in _TENSORFLOW_ERRORS:
        if isinstance(error, kinds):
            return tensorflow_error(None, None, str(error))
    return error
