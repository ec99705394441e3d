"""Gradient tapes that capture upstream gradients."""

from ipu_tf.eager import backprop

__all__ = ["backprop"]
