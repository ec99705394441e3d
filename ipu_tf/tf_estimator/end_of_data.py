"""`EndOfData`: error for input data that ends before the requested steps."""

from __future__ import annotations

import tensorflow as tf


class EndOfData(tf.errors.OutOfRangeError):
    """An `OutOfRangeError` that a monitored session does not take for the ordinary end of its work.

    Args:
        what: what ended, e.g. `training`.
        error: TensorFlow's account of it.
    """

    def __init__(self, what: str, error: tf.errors.OutOfRangeError) -> None:
        super().__init__(
            None,
            None,
            f"The dataset of input_fn ended before the steps of this {what} did. Give it `.repeat()`, or ask for fewer "
            f"steps. ({error.message})",
        )
