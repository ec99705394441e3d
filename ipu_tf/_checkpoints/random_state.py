"""State of the process's random numbers: of the devices, of Python and of NumPy."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from ipu_tf.device.memory.seed import restore_seeds, seeds_state


def host_random_state() -> Any:
    """Returns the states of `random` and `numpy.random` as plain data."""
    return (random.getstate(), np.random.get_state(legacy=True))


def restore_host_random_state(state: Any) -> None:
    """Sets the states of `random` and `numpy.random` to what `host_random_state` returned."""
    python, numpy = state
    random.setstate(python)
    np.random.set_state(numpy)


def random_state() -> Any:
    """Returns the states of all random numbers as plain data: also where the seeds of the devices are."""
    return {"host": host_random_state(), "devices": seeds_state()}


def restore_random_state(state: Any) -> None:
    """Sets all states to what `random_state` returned."""
    restore_host_random_state(state["host"])
    restore_seeds(state["devices"])
