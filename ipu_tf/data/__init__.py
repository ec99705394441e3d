"""Datasets of Graphcore's interface: `BufferDataset`."""

from ipu_tf.data import ops

__all__ = ["ops"]
