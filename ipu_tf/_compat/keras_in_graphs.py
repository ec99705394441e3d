"""Patches Keras 3 so that layers, variables and optimizers work in TensorFlow 1 graphs."""

from __future__ import annotations

import collections
import functools
import importlib
import logging
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from ipu_tf._patches.import_hooks import after_import
from ipu_tf._patches.installation import record, replace_in

_LOGGER = logging.getLogger("ipu_tf")
_NAMES = "object_name_uids"
"""Where Keras keeps how often it gave each name."""


def patch_keras_in_graphs() -> None:
    """Installs the patches for Keras 3 in TensorFlow 1 graphs, once Keras and TensorFlow are imported.

    Nothing is imported by this call.
    """
    after_import("keras.src.utils.naming", patch_layer_names)
    after_import("keras.src.models.sequential", patch_sequential)
    after_import("keras.src.optimizers.base_optimizer", patch_keras_optimizers)
    after_import("tensorflow.python.client.session", patch_session_fetches)
    after_import("tensorflow.python.training.optimizer", patch_tf1_optimizers)


def patch_layer_names(module: ModuleType) -> None:
    """Patches Keras to count layer names anew in each TensorFlow 1 graph, as Keras 2 did.

    Variables are named after their layers: a program that builds its graph twice, to train and to evaluate, finds them
    by their names.

    Args:
        module: Keras's inner module that makes names.
    """
    counts: weakref.WeakKeyDictionary[Any, dict[str, int]] = weakref.WeakKeyDictionary()

    def counted(stock: Callable[[str], str]) -> Callable[[str], str]:
        @functools.wraps(stock)
        def uniquify(name: str) -> str:
            if _tf2():
                return stock(name)
            own = counts.setdefault(_outermost_graph(), collections.defaultdict(int))
            before = module.global_state.get_global_attribute(_NAMES)
            module.global_state.set_global_attribute(_NAMES, own)
            try:
                return stock(name)
            finally:
                module.global_state.set_global_attribute(_NAMES, before)

        return uniquify

    replace_in(module, "uniquify", counted)


def _outermost_graph() -> Any:
    """Returns the outermost graph around the current one: for the body of a loop or function, the graph it is for."""
    graph = importlib.import_module("tensorflow").compat.v1.get_default_graph()
    while (outer := getattr(graph, "outer_graph", None)) is not None:
        graph = outer
    return graph


def patch_sequential(module: ModuleType) -> None:
    """Patches `Sequential` to apply a layer added twice only once, with TensorFlow 1's behaviour, as Keras 2 did.

    Args:
        module: Keras's inner module with `Sequential`.
    """

    def once_each(stock: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(stock)
        def init(self: Any, layers: Any = None, trainable: bool = True, name: str | None = None) -> None:
            # Keras reads this signature, to know what to write into a saved model.
            given = list(layers or ())
            once = list({id(layer): layer for layer in given}.values())
            if len(once) < len(given) and not _tf2():
                _LOGGER.warning("ipu_tf: a layer that Sequential is given twice is applied once, as Keras 2 did.")
                given = once
            stock(self, given, trainable=trainable, name=name)

        return init

    replace_in(module.Sequential, "__init__", once_each)


def _tf2() -> bool:
    return bool(importlib.import_module("tensorflow").compat.v1.executing_eagerly_outside_functions())


def patch_keras_optimizers(module: ModuleType) -> None:
    """Patches `apply_gradients` of Keras's optimizers to return an op with TensorFlow 1's behaviour, as Keras 2 did.

    Keras 3's gives a variable, and the assignments, which nothing waits for in a graph of TensorFlow 1, never run.

    Args:
        module: Keras's inner module with the base class of its optimizers.
    """

    def as_operation(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def apply_gradients(self: Any, grads_and_vars: Iterable[tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
            if _tf2():
                return stock(self, grads_and_vars, *args, **kwargs)
            return _applied(lambda pairs: stock(self, pairs, *args, **kwargs), self, list(grads_and_vars))

        return apply_gradients

    replace_in(module.BaseOptimizer, "apply_gradients", as_operation)


def patch_tf1_optimizers(module: ModuleType) -> None:
    """Patches TensorFlow 1's optimizers to accept variables of Keras 3's layers, which are no `tf.Variable`s.

    Args:
        module: TensorFlow's inner module with the base class of these optimizers.
    """

    def computing(compute: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(compute)
        def compute_gradients(self: Any, loss: Any, var_list: Any = None, *args: Any, **kwargs: Any) -> Any:
            if isinstance(var_list, list | tuple):
                var_list = [_tensorflow_variable(variable) for variable in var_list]
            return compute(self, loss, var_list, *args, **kwargs)

        return compute_gradients

    def applying(apply: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(apply)
        def apply_gradients(self: Any, grads_and_vars: Iterable[tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
            pairs = [(gradient, _tensorflow_variable(variable)) for gradient, variable in grads_and_vars]
            return apply(self, pairs, *args, **kwargs)

        return apply_gradients

    replace_in(module.Optimizer, "compute_gradients", computing)
    replace_in(module.Optimizer, "apply_gradients", applying)


def patch_session_fetches(module: ModuleType) -> None:
    """Patches sessions to fetch the variables of Keras 3's layers.

    Args:
        module: TensorFlow's inner module `session`.
    """

    def register(keras: ModuleType) -> None:
        # Where Keras imports TensorFlow it is not complete yet, with `Variable` or without: we are called again later.
        conversions = module._REGISTERED_EXPANSIONS  # noqa: SLF001 - there is no function that unregisters
        if not hasattr(keras, "Variable") or any(each[0] is keras.Variable for each in conversions):
            return
        module.register_session_run_conversion_functions(
            keras.Variable, lambda variable: ([_tensorflow_variable(variable)], lambda values: values[0])
        )
        record(
            "tensorflow.python.client.session:register_session_run_conversion_functions",
            lambda: conversions.remove(next(each for each in conversions if each[0] is keras.Variable)),
        )

    after_import("keras", register)


def _tensorflow_variable(variable: Any) -> Any:
    """Returns the `tf.Variable` of a Keras variable; anything else unchanged."""
    keras = sys.modules.get("keras")
    return variable.value if keras is not None and isinstance(variable, keras.Variable) else variable


def _applied(apply: Callable[[Any], Any], optimizer: Any, pairs: Sequence[tuple[Any, Any]]) -> Any:
    """Returns the op that applies gradients: within a function, assignments and reads keep their order."""
    tensorflow = importlib.import_module("tensorflow")
    gradients, variables = zip(*((g, v) for g, v in pairs if g is not None), strict=True)
    if not optimizer.built:
        with tensorflow.init_scope():
            optimizer.build(variables)

    def apply_all(*gradients: Any) -> Any:
        apply(zip(gradients, variables, strict=True))
        return tensorflow.constant(0)

    return tensorflow.function(apply_all, autograph=False)(*gradients).op
