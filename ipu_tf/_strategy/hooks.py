"""Registers context managers that are entered with a strategy's scope or an estimator's graph.

`keras_ipu` registers hooks here: within a scope, new Keras models become IPU models; in an estimator's graph, layer
names are counted anew. It is the only package of a higher layer that is imported by name here: a user's script does
not import it, and without it Keras models in a scope would stay on the CPU without a warning.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from ipu_tf._state.registry import register_state
from ipu_tf.device import environment
from ipu_tf.emulation import EmulationError

ScopeHook = Callable[[Any], "contextlib.AbstractContextManager[Any]"]
GraphHook = Callable[[], "contextlib.AbstractContextManager[Any]"]

_LEGACY_KERAS = "{what} Keras 2, whose models cannot run on the emulated IPU, which runs those of Keras 3: {advice}."

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
    """Enters every hook's context, Keras's among them.

    Raises:
        EmulationError: where `tf.keras` is to be Keras 2.
    """
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


def refuse_legacy_keras(function: Callable[..., Any]) -> None:
    """Refuses a step of a model of the package `tf_keras`, which its `fit`, `evaluate` and `predict` hand to `run`.

    Raises:
        EmulationError: for such a function.
    """
    module = getattr(getattr(function, "python_function", function), "__module__", None) or ""
    if module.split(".")[0] == "tf_keras":
        what, advice = "The model is one of `tf_keras`, which is", "make it with `keras` or `tf.keras`"
        raise EmulationError(_LEGACY_KERAS.format(what=what, advice=advice))


def _import_keras() -> None:
    if environment.legacy_keras():
        what, advice = "TF_USE_LEGACY_KERAS makes `tf.keras` the package `tf_keras`, which is", "unset that variable"
        raise EmulationError(_LEGACY_KERAS.format(what=what, advice=advice))
    importlib.import_module("keras_ipu")
