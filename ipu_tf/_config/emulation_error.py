"""`EmulationError`: raised for requests that an emulated IPU cannot meet."""

from __future__ import annotations


class EmulationError(NotImplementedError):
    """Raised for a request that the emulated IPU cannot meet; the message names the alternative."""


# Users know it, and pickles name it, by its public module.
EmulationError.__module__ = "ipu_tf.emulation"
