"""Keras part of entering an `IPUStrategy`'s scope: `keras_scope`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from ipu_tf._strategy.hooks import uses_legacy_keras
from keras_ipu.scope.model_patches import install_extensions
from keras_ipu.stock import patches as keras_patches


@contextlib.contextmanager
def keras_scope(strategy: Any) -> Iterator[None]:
    """Context in which new models run on the strategy's device, unless the strategy disables its Keras extension.

    Raises:
        NotImplementedError: if Keras runs on another backend than TensorFlow or JAX.
    """
    iterators: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if strategy.keras_extensions_enabled:
        keras_patches.install_trainer(_trainer())
        install_extensions()
        if uses_legacy_keras():
            from keras_ipu.keras_2 import trainer as keras_2_trainer

            keras_2_trainer.install()
            iterators = keras_2_trainer.iterators_in_scope()
    with iterators:
        yield


def _trainer() -> keras_patches.TrainerPatch:
    """Returns the replacement of the trainer for the current Keras backend."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        from keras_ipu.training.tensorflow.trainer import TRAINER

        return TRAINER
    if backend == "jax":
        from keras_ipu.training.jax.trainer import TRAINER as JAX_TRAINER

        return JAX_TRAINER
    raise NotImplementedError(
        "Keras models run on the emulated IPU with Keras's TensorFlow or JAX backend. Received: the "
        f"{backend} backend. Set KERAS_BACKEND=tensorflow or KERAS_BACKEND=jax before Keras is imported, or make the "
        "strategy with `enable_keras_extensions=False` to use it without Keras."
    )
