"""Builds features and labels from an `input_fn`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf.tf_estimator.hooks import InitializerHook
from ipu_tf.tf_estimator.model_fn import ModeKeys

_WANTED = "input_fn should return (features, labels) as a len 2 tuple."


def features_and_labels(element: Any, mode: str) -> tuple[Any, Any]:
    """Features and labels of one element of the data; no labels to predict with.

    Raises:
        ValueError: if the element is a tuple of other than two items, unless it is to predict with.
    """
    if not isinstance(element, (list, tuple)):
        return element, None
    if mode == ModeKeys.PREDICT:
        return element[0], None
    if len(element) != 2:
        raise ValueError(_WANTED)
    return element[0], element[1]


def make_input(data: Any, mode: str) -> tuple[Any, Any, tuple[InitializerHook, ...]]:
    """Features and labels as tensors of the graph, and the hooks that start them.

    Args:
        data: a `tf.data.Dataset`, or features and labels themselves.
        mode: one of `ModeKeys`.

    Raises:
        ValueError: as `features_and_labels`.
    """
    if not isinstance(data, tf.data.Dataset):
        return (*features_and_labels(data, mode), ())
    iterator = tf.compat.v1.data.make_initializable_iterator(data)
    return (*features_and_labels(iterator.get_next(), mode), (InitializerHook(iterator.initializer),))
