"""`tf.GradientTape.watch` of Keras's variables, which were TensorFlow's in Keras 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ipu_tf._patches.installation import replace_in


def install_watched_variables() -> None:
    """Patches tapes to watch what Keras's variables hold. Calling it again changes nothing."""
    replace_in(tf.GradientTape, "watch", _watch)


def _watch(stock: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def watch(tape: Any, tensor: Any) -> None:
        stock(tape, keras.tree.map_structure(_held, tensor))

    return watch


def _held(value: Any) -> Any:
    return value.value if isinstance(value, keras.Variable) else value
