"""Datasets derived from other datasets: `BufferDataset`."""

from ipu_tf.data.ops import dataset_ops

__all__ = ["dataset_ops"]
