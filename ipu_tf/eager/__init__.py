"""Gradient tapes."""

from ipu_tf.eager import backprop

__all__ = ["backprop"]
