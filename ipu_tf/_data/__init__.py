"""Datasets and named arrays on the host: reading a dataset, reading and writing files of arrays.

Enters: `tf.data` datasets, names with arrays. Leaves: NumPy arrays, `.npz` files.
Start with `dataset_reading`.
"""
