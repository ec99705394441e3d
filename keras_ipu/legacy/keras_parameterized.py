"""Compatibility module for `keras.keras_parameterized`: tests parameterized by mode or kind of model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf
from absl.testing import parameterized

from keras_ipu.legacy.testing_utils import model_type_scope, run_eagerly_scope

_KINDS = ("functional", "subclass", "sequential")


class TestCase(tf.test.TestCase, parameterized.TestCase):
    """A test case whose tests may be parameterized; every test starts with fresh names."""

    def tearDown(self) -> None:
        """Resets Keras's layer names."""
        keras.backend.clear_session()
        super().tearDown()


def run_with_all_model_types(
    test_or_class: Any = None, exclude_models: str | Sequence[str] | None = None
) -> Callable[..., Any]:
    """Runs a test once for each kind of model that `get_model_type` can give, less the excluded ones."""
    excluded = [exclude_models] if isinstance(exclude_models, str) else list(exclude_models or ())
    rows = [(f"_{kind}", kind) for kind in _KINDS if kind not in excluded]
    return _decorator(test_or_class, rows, model_type_scope)


def run_all_keras_modes(
    test_or_class: Any = None,
    config: Any = None,
    always_skip_v1: bool = False,
    always_skip_eager: bool = False,
    **kwargs: Any,
) -> Callable[..., Any]:
    """Runs a test once for each of Keras's modes: compiled functions, and eagerly unless that is skipped.

    Keras 1's graph mode, which Keras 3 does not have, is skipped always.
    """
    rows = [("_v2_function", False)] + ([] if always_skip_eager else [("_v2_eager", True)])
    return _decorator(test_or_class, rows, run_eagerly_scope)


def _decorator(test_or_class: Any, rows: list[tuple[str, Any]], scope: Callable[[Any], Any]) -> Callable[..., Any]:
    def once_for_each(test: Callable[..., Any]) -> Any:
        @parameterized.named_parameters(*rows)
        @functools.wraps(test)
        def run(self: Any, value: Any, *args: Any, **kwargs: Any) -> None:
            with scope(value):
                test(self, *args, **kwargs)

        return run

    def decorate(target: Any) -> Any:
        if not isinstance(target, type):
            return once_for_each(target)
        for name, test in list(vars(target).items()):
            if name.startswith("test") and callable(test):
                setattr(target, name, once_for_each(test))
        return type(target)(target.__name__, target.__bases__, dict(vars(target)))

    return decorate if test_or_class is None else decorate(test_or_class)
