"""Calls of optimizers in a training step that is traced: of every optimizer, wherever the step has it from.

train_step ──► opt2.apply(gradients, variables) ──► ours(opt2, stock, gradients, variables)
                                                      stock ──► inner.apply(...)     is part of that call
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras

from ipu_tf._state.context import context_value

Handlers = Mapping[str, Callable[..., Any]]
"""By name of a method of optimizers: `ours(optimizer, stock, *args, **kwargs)`, where `stock` is the method, bound."""

_OF_STOCK = ("keras.src.", "keras_ipu.")
_FORWARDS = "apply_gradients"
"""A method that calls `apply`, unless a class of the user's has one of its own."""
_WITHIN_APPLY = "_backend_apply_gradients"
"""What `apply` calls before it clips gradients."""
_LOCK = threading.RLock()

#: What handles the calls of the step that is traced; None where none is, and within a call that is handled.
_handlers: contextvars.ContextVar[Handlers | None] = contextvars.ContextVar("ipu_optimizer_calls", default=None)


def within_call() -> contextlib.AbstractContextManager[None]:
    """Context of a call that is handled: those of optimizers which it wraps are left alone."""
    return context_value(_handlers, None)


@contextlib.contextmanager
def optimizer_calls(handlers: Handlers, kinds: Sequence[type] | None = None) -> Iterator[None]:
    """Context in which functions are called in place of some methods of Keras's optimizers, in this thread.

    Args:
        handlers: the functions, by name of the method.
        kinds: the classes of the optimizers; by default all of Keras 3's.
    """
    with contextlib.ExitStack() as stack:
        for kind in kinds_of(keras.optimizers.Optimizer, "apply") if kinds is None else kinds:
            for name in handlers:
                if name in vars(kind) and (name != _FORWARDS or not kind.__module__.startswith(_OF_STOCK)):
                    stack.enter_context(_watched(kind, name))
        stack.enter_context(context_value(_handlers, handlers))
        yield


def updates_of_all(update: Callable[..., Any], unseen: Callable[..., Any]) -> contextlib.AbstractContextManager[None]:
    """Context in which optimizers update variables by `update(optimizer, stock, gradients, variables)`.

    Args:
        update: gets the update of stock Keras, which takes gradients and variables, and the variables or None.
        unseen: gets those of a call by a method that was looked up before the context, of which a part is left.
    """

    def apply(optimizer: Any, stock: Callable[..., Any], grads: Any, trainable_variables: Any = None) -> Any:
        return update(optimizer, stock, list(grads), trainable_variables)

    def apply_gradients(
        optimizer: Any, stock: Callable[..., Any], grads_and_vars: Any, *args: Any, **kwargs: Any
    ) -> Any:
        grads, variables = zip(*grads_and_vars, strict=True)
        pairs = functools.partial(zip, strict=True)
        return update(optimizer, lambda new, of: stock(list(pairs(new, of)), *args, **kwargs), list(grads), variables)

    def inner(optimizer: Any, stock: Callable[..., Any], grads: Any, trainable_variables: Any) -> Any:
        return unseen(optimizer, stock, list(grads), trainable_variables)

    return optimizer_calls({"apply": apply, _FORWARDS: apply_gradients, _WITHIN_APPLY: inner})


def kinds_of(optimizer: type, method: str) -> list[type]:
    """Returns the base class of a class of optimizers which has a method, and all classes that derive from it."""
    kinds: list[Any] = [next(kind for kind in reversed(optimizer.__mro__) if method in vars(kind))]
    for kind in kinds:
        kinds += [each for each in kind.__subclasses__() if each not in kinds]
    return kinds


@contextlib.contextmanager
def _watched(kind: type, name: str) -> Iterator[None]:
    """Context in which a method of a class is a `_Watched`; steps that other threads trace share it."""
    with _LOCK:
        found = vars(kind)[name]
        method = found if isinstance(found, _Watched) else _Watched(name, found)
        setattr(kind, name, method)
        method.users += 1
    try:
        yield
    finally:
        with _LOCK:
            method.users -= 1
            if not method.users and vars(kind).get(name) is method:
                setattr(kind, name, method.stock)


class _Watched:
    """A method of a class, whose calls are handled where there are handlers.

    Args:
        name: of the method.
        stock: the method, as its class has it.

    Attributes:
        users: how many contexts need it.
    """

    def __init__(self, name: str, stock: Any) -> None:
        self._name = name
        self.stock = stock
        self.users = 0

    def __get__(self, optimizer: Any, owner: type | None = None) -> Any:
        bound = self.stock.__get__(optimizer, owner)
        return bound if optimizer is None else self._handled(optimizer, bound)

    def _handled(self, optimizer: Any, bound: Any) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            handler = (_handlers.get() or {}).get(self._name)
            if handler is None:
                return bound(*args, **kwargs)
            with within_call():
                return handler(optimizer, bound, *args, **kwargs)

        return call
