"""What entering an `IPUStrategy`'s scope does for Keras."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from keras_ipu import keras_private
from keras_ipu.model_hooks import install_extensions
from keras_ipu.trainer import TRAINER


@contextlib.contextmanager
def keras_scope(strategy: Any) -> Iterator[None]:
    """Models made within it run on the strategy's device, unless the strategy was told to leave Keras alone.

    Raises:
        NotImplementedError: if Keras runs on another backend than TensorFlow.
    """
    if strategy.keras_extensions_enabled:
        if keras.backend.backend() != "tensorflow":
            raise NotImplementedError(
                "Keras models run on the emulated IPU with Keras's TensorFlow backend. Received: the "
                f"{keras.backend.backend()} backend. Set KERAS_BACKEND=tensorflow, or make the strategy with "
                "`enable_keras_extensions=False` to use it without Keras."
            )
        keras_private.install(TRAINER)
        install_extensions()
    yield
