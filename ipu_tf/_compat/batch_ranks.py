"""Batches of the rank that the Keras of TensorFlow 2.6 gave them, for programs for Keras 2.

Up to TensorFlow 2.6 a model's own `train_step`, `test_step` and `predict_step` made tensors of the shape [batch]
ones of [batch, 1]. From 2.7 on they leave them alone, and losses refuse labels whose rank is two less than that of the
predictions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ipu_tf._patches.import_hooks import after_import
from ipu_tf._patches.installation import replace_in
from ipu_tf.device import environment


def add_last_dimensions() -> None:
    """Has the steps of Keras 2's `Model` add a dimension to batches of one, as in TensorFlow 2.6. Imports nothing.

    Steps that a program's own model overrides are given what they were given before: the data as it is.
    """
    after_import("tf_keras.src.engine.training", _patch_steps)


def _patch_steps(training: ModuleType) -> None:
    if environment.legacy_keras():
        for name in ("train_step", "test_step", "predict_step"):
            replace_in(training.Model, name, _expanding, by=__name__)


def _expanding(stock: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @functools.wraps(stock)
    def step(self: Any, data: Any) -> Any:
        return stock(self, _expanded(data))

    return step


def _expanded(data: Any) -> Any:
    import tensorflow as tf  # Keras has imported it by then

    def expanded(leaf: Any) -> Any:
        return leaf[:, None] if isinstance(leaf, tf.Tensor) and leaf.shape.rank == 1 else leaf

    return tf.nest.map_structure(expanded, data)
