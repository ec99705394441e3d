"""`Coordination`: the key-value store of JAX's coordination service, which instance 0 hosts.

JAX has no public interface for it. This file uses JAX's private API; `tests/project/test_private_api.py` watches it.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import jax
from jax._src import distributed, xla_bridge

from ipu_tf.device.instances.place import Place

_PIECE = 1 << 20
"""Bytes of a value that are sent at a time."""


class Coordination:
    """Connection of this process to the others.

    Args:
        place: which one this is.
        timeout: seconds to wait for the others to connect.

    Raises:
        RuntimeError: if JAX runs already, or the others do not come in time.
        ValueError: if nothing says where instance 0 listens.
    """

    def __init__(self, place: Place, timeout: float) -> None:
        if xla_bridge.backends_are_initialized():
            raise RuntimeError("JAX runs already")
        # Else JAX keeps SIGTERM from ending the process, and ends it itself, without our words, when another one ends.
        jax.config.update("jax_enable_preemption_service", False)
        jax.config.update("jax_enable_recoverability", True)
        jax.distributed.initialize(
            num_processes=place.count,
            process_id=place.index,
            initialization_timeout=int(timeout),
            shutdown_timeout_seconds=int(timeout),
        )
        self._place = place
        self._client: Any = distributed.global_state.client

    def put(self, key: str, value: bytes) -> None:
        """Stores a value under a key that has none."""
        pieces = [value[at : at + _PIECE] for at in range(0, len(value), _PIECE)] or [b""]
        for number, piece in enumerate(pieces[1:], 1):
            self._client.key_value_set_bytes(f"{key}/{number}", piece)
        self._client.key_value_set_bytes(key, len(pieces).to_bytes(4, "little") + pieces[0])

    def get(self, key: str, seconds: float) -> bytes | None:
        """Returns the value under a key, for which it waits so long; None if there is none then."""
        try:
            first = self._client.blocking_key_value_get_bytes(key, int(seconds * 1000))
        except Exception as error:  # jaxlib has one class for all of them
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise
        count = int.from_bytes(first[:4], "little")
        more = (self._client.blocking_key_value_get_bytes(f"{key}/{n}", 60_000) for n in range(1, count))
        return b"".join([first[4:], *more])

    def delete(self, key: str) -> None:
        """Deletes a value."""
        self._client.key_value_delete(key)
        self._client.key_value_delete(f"{key}/")

    def note(self, key: str, text: str) -> None:
        """Stores a text in place of the one that the key has."""
        self._client.key_value_set(key, text, allow_overwrite=True)

    def noted(self, key: str) -> str | None:
        """Returns a text that was stored by `note`; None if there is none."""
        try:
            return str(self._client.key_value_try_get(key))
        except Exception as error:
            if "NOT_FOUND" in str(error):
                return None
            raise

    def all_noted(self, folder: str) -> dict[int, str]:
        """Returns the texts that instances stored by `note` under `folder/<instance>`."""
        found = self._client.key_value_dir_get(f"{folder}/")
        return {int(key.rpartition("/")[2]): str(text) for key, text in found}

    def wait_until_alone(self, seconds: float) -> None:
        """Waits until the other instances closed their connections: JAX aborts those whose service goes before."""

        def ask() -> None:
            with contextlib.suppress(Exception):  # where the service ends before
                self._client.get_live_nodes(list(range(self._place.count)))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()  # JAX answers when all were asked or are gone
        asking.join(seconds)

    def leave(self) -> None:
        """Closes the connection."""
        jax.distributed.shutdown()
