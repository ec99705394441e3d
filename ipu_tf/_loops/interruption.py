"""Handles Ctrl-C in Keras's training: exports `InterruptibleCall`, `Interrupts` and `check_interrupts` of the device.

`InterruptibleCall` is around a whole `fit`, `evaluate` or `predict`. `Interrupts` defers Ctrl-C while a model's state
is taken from Keras's variables or given back, so that none of it is lost.
"""

from __future__ import annotations

from ipu_tf.device.run.interruptible_call import InterruptibleCall
from ipu_tf.device.run.interrupts import Interrupts, check_interrupts

__all__ = ["InterruptibleCall", "Interrupts", "check_interrupts"]
