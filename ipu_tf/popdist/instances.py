"""Checks of IPUs and replicas that PopDist's variables and the program ask for."""

from __future__ import annotations

from ipu_tf.device.instances.place import place


def check_ipus_per_replica(ipus: int) -> None:
    """Checks that a replica has as many IPUs as `poprun` was told.

    Raises:
        ValueError: if it has not.
    """
    own = place()
    if own.by_popdist and ipus != own.ipus_per_replica:
        raise ValueError(
            f"The program uses {ipus} IPUs for each replica, and poprun was started for {own.ipus_per_replica}: "
            f"give it --ipus-per-replica {ipus}."
        )
