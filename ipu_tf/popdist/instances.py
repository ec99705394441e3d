"""Detects from the environment whether several processes run this program."""

from __future__ import annotations

from ipu_tf.device.environment import distribution
from ipu_tf.emulation import EmulationError


def require_one_instance() -> None:
    """Checks that this process is on its own.

    Raises:
        EmulationError: if PopRun or MPI started it as one of several.
    """
    variables = distribution()
    if variables:
        given = ", ".join(f"{name}={text}" for name, text in sorted(variables.items()))
        raise EmulationError(
            f"This process is one of several that run a program together ({given}). That is not emulated: run one "
            "process, without poprun or mpirun, and give its device all the IPUs: `auto_select_ipus = n` runs n "
            "replicas in one process, with the same results."
        )
