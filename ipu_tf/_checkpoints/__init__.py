"""Checkpoints of runs that are to be resumed exactly: the format of their files, the folder that keeps the last two.

Enters: arrays and plain data. Leaves: a sealed file, or what one holds.
Start with `checkpoint_folder`.
"""
