"""`EmulationError`: raised for requests that an emulated IPU cannot meet."""

from __future__ import annotations


class EmulationError(NotImplementedError):
    """A request that the emulated IPU cannot meet: says what was asked for and what to do instead."""


# Users know it, and pickles name it, by its public module.
EmulationError.__module__ = "ipu_tf.emulation"
