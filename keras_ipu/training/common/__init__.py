"""Shared by both back ends: trainer, step function, epoch iterator, step split, callbacks, checks before a run.

The way of a batch through these files is in `keras_ipu.training`. Start with `trainer`, then `step_function`.
Enters: a call of `fit`, `evaluate` or `predict`, with its data. Leaves: logs or predictions, and changed variables.
"""
