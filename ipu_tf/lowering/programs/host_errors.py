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
    ReplicaGroupError,
    UnknownQueue,
)
from ipu_tf.device.feeds.connection_type import DeviceNotAttachedError
from ipu_tf.device.memory.host_tables import HostTableExists, HostTableIndexError, UnknownHostTable
from ipu_tf.device.numerics.assertions import AssertionFailed
from ipu_tf.device.numerics.exceptions import FloatingPointExceptionError
from ipu_tf.lowering.programs.check_messages import check_message


def to_tensorflow_error(error: BaseException) -> BaseException:
    """Converts a device error to a TensorFlow error; other exceptions are unchanged."""
    if isinstance(error, AssertionFailed):
        return tf.errors.InvalidArgumentError(None, None, check_message(error))
    if isinstance(error, InfeedExhausted):
        return tf.errors.OutOfRangeError(None, None, str(error))
    if isinstance(error, InfeedTimeout):
        return tf.errors.DeadlineExceededError(None, None, str(error))
    if isinstance(error, UnknownQueue) and error.kind == "infeed":
        return tf.errors.FailedPreconditionError(
            None,
            None,
            "Trying to access an infeed dataset iterator which has not been created. Did you initialize the "
            f"infeed_queue '{error.name}' ?",
        )
    if isinstance(error, (DeviceNotAttachedError, HostTableIndexError, ReplicaGroupError)):
        return tf.errors.InvalidArgumentError(None, None, str(error))
    if isinstance(error, FloatingPointExceptionError):
        return tf.errors.InternalError(None, None, str(error))
    if isinstance(error, UnknownQueue):
        return tf.errors.NotFoundError(None, None, str(error))
    if isinstance(error, (AccumulationCountError, AccumulationOutsideLoopError)):
        return tf.errors.FailedPreconditionError(None, None, str(error))
    if isinstance(
        error, (HostTableExists, UnknownHostTable, InfeedInUse, InfeedReplicaMismatch, OutfeedReplicaMismatch)
    ):
        return tf.errors.FailedPreconditionError(None, None, str(error))
    return error
