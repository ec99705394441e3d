"""Keeps per-replica variable values of a graph program between session runs; the session holds replica 0's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf.device.program.replicas import Replicas


class ReplicaVariables:
    """Values of one program's replicas after its last run.

    The session owns its variables: if one has another value than replica 0 left in it, the session changed it, and all
    replicas start from that, as they do in another session. A run that fails changes neither: the next one starts from
    what the run before it left.
    """

    def __init__(self) -> None:
        self._left: dict[int, tuple[np.ndarray, jax.Array]] = {}
        self._session = 0

    def of_session(self, number: int) -> ReplicaVariables:
        """Drops the values that another session left, if any; returns itself.

        Args:
            number: of the session that runs the program.
        """
        if number != self._session:
            self._left.clear()
            self._session = number
        return self

    def resumed(self, index: int, value: np.ndarray) -> Any:
        """Returns state `index` for the next run: each replica's own value, if the session's is still replica 0's."""
        if index not in self._left:
            return value
        left, buffer = self._left[index]
        if left.tobytes() != value.tobytes():  # NaN is not equal to itself
            del self._left[index]
            return value
        return jnp.copy(buffer)  # which the run is given for good, also if it fails

    def kept(self, index: int, buffer: jax.Array, replicas: Replicas) -> np.ndarray:
        """Stores the replicas' new values of state `index`; returns replica 0's."""
        value = np.asarray(replicas.first(buffer))
        if replicas.count > 1:
            self._left[index] = (value, buffer)
        return value
