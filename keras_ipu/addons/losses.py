"""Losses of the addons."""

from keras_ipu.addons.layers.ctc import CTCLoss

__all__ = ["CTCLoss"]
