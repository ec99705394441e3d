"""Reads datasets on the host, and reads and writes named arrays as `.npz` files. Private; `ipu_tf.data` is Graphcore's.

Enters: `tf.data` datasets, names with arrays. Leaves: NumPy arrays, `.npz` files.
Start with `dataset_reading`.
"""
