"""Models of Keras 2, the package `tf_keras`, on the emulated IPU: `fit`, `evaluate` and `predict` run on the device.

Enters: a model of `tf_keras` that was made in an `IPUStrategy`'s scope, and its data. Leaves: logs, predictions.
Start with `trainer.py`. Nothing here is imported unless a program uses `tf_keras`, which is no required package.
"""
