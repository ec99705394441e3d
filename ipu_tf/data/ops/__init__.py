"""Data sets made from data sets."""

from ipu_tf.data.ops import dataset_ops

__all__ = ["dataset_ops"]
