"""What Keras's training needs of Ctrl-C: `InterruptibleCall` around a call, `Interrupts` where state is handed over."""

from __future__ import annotations

from ipu_tf.device.run.interruptible_call import InterruptibleCall
from ipu_tf.device.run.interrupts import Interrupts, check_interrupts

__all__ = ["InterruptibleCall", "Interrupts", "check_interrupts"]
