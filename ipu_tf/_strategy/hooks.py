"""Registers context managers that are entered with a strategy's scope or an estimator's graph.

`keras_ipu` registers hooks here: within a scope, new Keras models become IPU models; in an estimator's graph, layer
names are counted anew. It is the only package of a higher layer that is imported by name here: a user's script does
not import it, and without it Keras models in a scope would stay on the CPU without a warning.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ipu_tf._state.registry import register_state
from ipu_tf.device import environment
from ipu_tf.emulation import EmulationError

ScopeHook = Callable[[Any], "contextlib.AbstractContextManager[Any]"]
GraphHook = Callable[[], "contextlib.AbstractContextManager[Any]"]

_LEGACY_KERAS = (
    "The model is one of `tf_keras`, which is Keras 2, and its loops were not made the device's. Import `tf_keras` "
    "before the strategy's scope is entered, and make the strategy with its Keras extensions enabled. Received: {step}."
)

_hooks: list[ScopeHook] = register_state("hooks of scopes", [], kept="filled by importing keras_ipu")
_graph_hooks: list[GraphHook] = register_state("hooks of graphs", [], kept="filled by importing keras_ipu")


def add_scope_hook(hook: ScopeHook) -> None:
    """Registers a hook.

    Args:
        hook: from the strategy to a context manager that is entered with the strategy's scope.
    """
    if hook not in _hooks:
        _hooks.append(hook)


@contextlib.contextmanager
def enter_scope_hooks(strategy: Any) -> Iterator[None]:
    """Enters every hook's context, Keras's among them."""
    _import_keras()
    with contextlib.ExitStack() as stack:
        for hook in _hooks:
            stack.enter_context(hook(strategy))
        yield


def add_graph_hook(hook: GraphHook) -> None:
    """Registers a hook for graphs that stand alone.

    Args:
        hook: makes a context manager that is entered while such a graph is built.
    """
    if hook not in _graph_hooks:
        _graph_hooks.append(hook)


@contextlib.contextmanager
def standalone_graph_scope() -> Iterator[None]:
    """Enters every graph hook's context for a standalone graph, such as an estimator's."""
    _import_keras()
    with contextlib.ExitStack() as stack:
        for hook in _graph_hooks:
            stack.enter_context(hook())
        yield


def uses_legacy_keras() -> bool:
    """Returns whether the program uses Keras 2: it imported `tf_keras`, or `TF_USE_LEGACY_KERAS` asks for it."""
    return sys.modules.get("tf_keras") is not None or environment.legacy_keras()


def refuse_legacy_keras(function: Callable[..., Any]) -> None:
    """Refuses a step of a model of the package `tf_keras`, which its own `fit`, `evaluate` and `predict` hand to `run`.

    Those that `keras_ipu.keras_2` has put in their place do not.

    Raises:
        EmulationError: for such a function.
    """
    module = getattr(getattr(function, "python_function", function), "__module__", None) or ""
    if module.split(".")[0] == "tf_keras":
        raise EmulationError(_LEGACY_KERAS.format(step=f"{module}.{getattr(function, '__name__', 'a function')}"))


def _import_keras() -> None:
    importlib.import_module("keras_ipu")
