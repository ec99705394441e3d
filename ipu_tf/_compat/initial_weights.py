"""Initial weights as the Keras of TensorFlow 2.6 drew them, for programs for Keras 2 that seed TensorFlow alone.

An initializer without a seed drew by TensorFlow's own random ops there: `tf.random.set_seed` is enough for the same
weights in each run, and tests of that time name predictions that follow from them. Keras 2.21 draws a seed for each
initializer by Python's `random`. What a program seeds by that, or by `keras.utils.set_random_seed`, stays as it is.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ipu_tf._patches.import_hooks import after_import
from ipu_tf._patches.installation import replace_in
from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device import environment

_python_seeded = register_state("seed of Python's random numbers", ProcessValue(False), kept="the seed stays")


def draw_initial_weights_by_tensorflow() -> None:
    """Has Keras 2's initializers without a seed draw as those of TensorFlow 2.6, where TensorFlow alone is seeded.

    Imports nothing.
    """
    replace_in(random, "seed", _noting_seeds)
    after_import("tf_keras.src.backend", _draw_by_tensorflow)


def _noting_seeds(stock: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(stock)
    def seed(a: Any = None, version: int = 2) -> None:
        stock(a, version)
        _python_seeded.value = a is not None

    return seed


def _draw_by_tensorflow(backend: ModuleType) -> None:
    def patched(stock: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(stock)
        def maybe_init(self: Any) -> None:
            # Of the generators that Keras 2.21 makes, those of initializers are stateless.
            unseeded = not self._built and self._rng_type == self.RNG_STATELESS and self._seed is None
            if unseeded and _tensorflow_alone_is_seeded(backend):
                self._rng_type = self.RNG_LEGACY_STATEFUL
            stock(self)

        return maybe_init

    if environment.legacy_keras():
        replace_in(backend.RandomGenerator, "_maybe_init", patched, by=__name__)


def _tensorflow_alone_is_seeded(backend: ModuleType) -> bool:
    from ipu_tf.lowering.tensorflow.tf_values import global_seed  # imports TensorFlow, as Keras has done by then

    by_keras = getattr(backend._SEED_GENERATOR, "generator", None) is not None  # noqa: SLF001 - Keras has no question
    return global_seed() is not None and not by_keras and not _python_seeded.value
