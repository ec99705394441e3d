"""`FeedAgreement`: how many iterations a chunk runs in all instances: as many as each has elements for.

    instance 0   4 iterations, element 16 ─┐                        ┌─► 0 iterations, and what all said
    instance 1   0 iterations, the end ────┴─ gathered, in the chunk ┴─► an error of the same words in both

A loop of which one instance runs an iteration less would have the others wait in its collectives for ever. An instance
that begins its data anew, where the others go on, would train on other batches with them than it is meant to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf.device.errors import InfeedExhausted
from ipu_tf.device.feeds.chunk_reading import StagedChunk
from ipu_tf.device.instances.group import EQUAL_DATA, InstanceError
from ipu_tf.device.instances.sums import gather_over_instances

_GOES_ON, _ENDS, _FAILS = range(3)
_TOLD = ("", ", which is their end", ", where they fail")


class UnequalFeedsError(InstanceError):
    """Raised in all instances if the data of a loop ends, fails or begins anew in some of them."""


class FeedAgreement:
    """What this instance says of the chunks of a loop, and what the others said.

    Args:
        asked: whether instances agree: where several feed the loop.
        program: whose loop it is.
        elements: how many an iteration takes.
    """

    def __init__(self, asked: bool, program: str, elements: int) -> None:
        self._asked, self._program, self._elements = asked, program, elements
        self._error: UnequalFeedsError | None = None

    def said(self, chunk: StagedChunk | None) -> np.ndarray[Any, Any] | np.int32:
        """Returns a chunk's iterations as its function takes them, `int32[3]` where instances agree; None has none."""
        count, position, error = (chunk.count, chunk.position, chunk.error) if chunk is not None else (0, 0, None)
        end = _GOES_ON if error is None else _ENDS if isinstance(error, InfeedExhausted) else _FAILS
        return np.array([count, position, end], np.int32) if self._asked else np.int32(count)

    def heard(self, results: Sequence[Any]) -> Sequence[Any]:
        """Takes what all said from the results of a chunk's function; returns the others."""
        if not self._asked:
            return results
        *others, rows = results
        self._error = unequal(np.asarray(rows), self._program, self._elements)
        return others

    def ended_by(self, chunk: StagedChunk, ran: int, complete: bool) -> BaseException | None:
        """Returns what ended a loop early after a chunk; None if nothing did.

        Args:
            chunk: the chunk.
            ran: iterations of it that ran.
            complete: whether the loop has run all of its own.
        """
        own = chunk.error if ran == chunk.count and not complete else None
        return own if own is not None and not isinstance(own, InfeedExhausted) else self._error or own


def agreed(own: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns how many iterations all instances run, and what all said, `int32[instances, 3]`; traced by JAX."""
    rows = gather_over_instances(own)
    aligned = jnp.all(rows[:, 1] == rows[0, 1])
    return jnp.where(aligned, jnp.min(rows[:, 0]), 0), rows


def unequal(rows: np.ndarray[Any, Any], program: str, elements: int) -> UnequalFeedsError | None:
    """Returns the error if the instances did not have the same number of iterations; None if they had.

    Args:
        rows: what all said.
        program: whose data it is.
        elements: how many an iteration takes.

    >>> str(unequal(np.array([[4, 16, 0], [1, 16, 1]]), "train step", 2)).split(". ")[1]
    'Received: instance 0 has 24, instance 1 has only 18, which is their end'
    """
    counts, positions, _ = rows.T
    if len(set(positions)) > 1:
        texts = [f"instance {index} is at element {position}" for index, position in enumerate(positions)]
    elif len(set(counts)) > 1:
        texts = [
            f"instance {index} has {'only ' if count < max(counts) else ''}{position + count * elements}{_TOLD[end]}"
            for index, (count, position, end) in enumerate(rows)
        ]
    else:
        return None
    return UnequalFeedsError(
        f"The data of '{program}' must have the same number of elements in all {len(rows)} instances. Received: "
        f"{', '.join(texts)}. {EQUAL_DATA}"
    )
