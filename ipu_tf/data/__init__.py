"""Data sets."""

from ipu_tf.data import ops

__all__ = ["ops"]
