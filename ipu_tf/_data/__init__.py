"""Datasets and named arrays on the host: iterates over datasets, reads and writes `.npz` files.

Enters: `tf.data` datasets, names with arrays. Leaves: NumPy arrays, `.npz` files.
Start with `dataset_reading`.
"""
