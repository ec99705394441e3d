"""Exact resume: saves all that a `fit` depends on, and has a later process go on with the same bits.

    trainer ──► resumable(fit's arguments) ──► ResumableRun ◄── ExactResume, a callback that Keras calls last
                                                 │
                     variables ◄── VariableAccess│DataTracker ──► position in the data
                                                 ▼
                                          CheckpointFolder

Enters: a model, its callbacks, and the epoch iterator of its data. Leaves: checkpoints.
Start with `resumable_run`.
"""
