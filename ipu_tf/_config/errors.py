"""Makes the TensorFlow errors that configuration raises; imports TensorFlow lazily."""

from __future__ import annotations


def failed_precondition(message: str) -> Exception:
    """A `tf.errors.FailedPreconditionError`: the call needs something to be done first."""
    import tensorflow as tf

    error: Exception = tf.errors.FailedPreconditionError(None, None, message)
    return error


def resource_exhausted(message: str) -> Exception:
    """A `tf.errors.ResourceExhaustedError`: there is not enough memory."""
    import tensorflow as tf

    error: Exception = tf.errors.ResourceExhaustedError(None, None, message)
    return error


def invalid_argument(message: str) -> Exception:
    """A `tf.errors.InvalidArgumentError`: the call names something that does not exist."""
    import tensorflow as tf

    error: Exception = tf.errors.InvalidArgumentError(None, None, message)
    return error
