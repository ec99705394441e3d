"""Seeds of Keras's random layers in steps of several replicas: each replica draws numbers of its own.

SeedGenerator.state    the same on all replicas, and counts as in stock Keras
      │ next()
replica 0: seed        what stock Keras draws
replica r: seed + r * an odd number
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from ipu_tf._state.context import context_value
from keras_ipu.stock import patches as keras_patches
from keras_ipu.training.common.step_split import StepSplit

_STEP = 0x9E3779B1
"""Between the seeds of replicas: odd, so that 2**32 of them differ."""
_index: contextvars.ContextVar[Callable[[], Any] | None] = contextvars.ContextVar("ipu_replica_index", default=None)


def seeds_of_replicas(split: StepSplit, replica_index: Callable[[], Any]) -> contextlib.AbstractContextManager[Any]:
    """Context in which a step is traced whose replicas each take a batch of their own.

    A remainder, of which every replica computes all batches, is not traced in it: its replicas have to agree.

    Args:
        split: of the step.
        replica_index: gives the index of the replica that computes it, `int32[]`, while the step is traced.
    """
    return contextlib.nullcontext() if split.all_replicas == 1 else context_value(_index, replica_index)


def patch_seed_generators() -> None:
    """Patches Keras's seed generators, once; outside of `seeds_of_replicas` they are stock."""
    keras_patches.patch_method(keras.random.SeedGenerator, "next", lambda generator: _index.get() is not None, _next)


def _next(stock: Callable[..., Any], generator: Any, *args: Any, **kwargs: Any) -> Any:
    seed, index = stock(generator, *args, **kwargs), _index.get()
    if index is None:
        return seed
    first = ops.cast(index(), seed.dtype) * ops.cast(_STEP, seed.dtype)
    return seed + ops.stack([first, ops.zeros_like(first)])
