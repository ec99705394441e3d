"""Calls of Keras 2's optimizers in a training step that is traced: of both generations, wherever it has them from.

train_step ──► opt2.apply_gradients(pairs) ──► ours(opt2, stock, gradients, variables)
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from keras_ipu.stock.attributes import own_attribute
from keras_ipu.training.common.optimizer_calls import kinds_of, optimizer_calls, within_call

_APPLY = "apply_gradients"

Apply = Callable[[list[Any], list[Any]], Any]
"""Applies complete gradients to variables."""
Update = Callable[[Any, Apply, list[Any], list[Any]], Any]
"""Gets an optimizer, its update, gradients and variables."""


@contextlib.contextmanager
def updates_of_all(optimizer: Any, ours: Update) -> Iterator[None]:
    """Context in which optimizers update variables by `ours`; calls without gradients are left as they are.

    Args:
        optimizer: of the model, of any class, or None.
        ours: gets an optimizer, its stock update, gradients and variables.
    """

    def apply_gradients(called: Any, stock: Callable[..., Any], grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        if not pairs:
            return stock(pairs, *args, **kwargs)
        gradients, variables = (list(each) for each in zip(*pairs, strict=True))

        def apply(complete: list[Any], of: list[Any]) -> Any:
            return stock(list(zip(complete, of, strict=True)), *args, **kwargs)

        return ours(called, apply, gradients, variables)

    with contextlib.ExitStack() as stack:
        stack.enter_context(optimizer_calls({_APPLY: apply_gradients}, _kinds()))
        if optimizer is not None:
            stack.enter_context(_replaced(optimizer, apply_gradients))
        yield


def _kinds() -> list[type]:
    """Returns the classes of optimizers of both generations, and those of the user that derive from them."""
    package = "tf_keras.src.optimizers"  # whose public names are those of the older ones under the launcher
    newer = importlib.import_module(f"{package}.optimizer").Optimizer
    older = importlib.import_module(f"{package}.legacy.optimizer_v2").OptimizerV2
    return [*kinds_of(newer, _APPLY), *kinds_of(older, _APPLY)]


@contextlib.contextmanager
def _replaced(optimizer: Any, ours: Callable[..., Any]) -> Iterator[None]:
    """Context in which `apply_gradients` of one optimizer, whatever its class is, is `ours(optimizer, stock, ...)`."""
    stock = getattr(optimizer, _APPLY)

    def apply_gradients(*args: Any, **kwargs: Any) -> Any:
        with within_call():
            return ours(optimizer, stock, *args, **kwargs)

    with own_attribute(optimizer, _APPLY, apply_gradients):
        yield
