"""Exports for serving: a SavedModel that stock TensorFlow runs, with the device's program beside it.

Enters: a function or model, its input signature, the iterations of its loop. Leaves: a SavedModel folder.
Start with `export`.
"""
