"""Methods that models of Keras 2 get in an `IPUStrategy`'s scope: options, and stages of pipelines."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ipu_tf._patches.installation import replace_in
from ipu_tf.emulation import EmulationError
from keras_ipu.keras_2.pipeline_stages import StageMethods
from keras_ipu.options.methods import OptionMethods
from keras_ipu.stock.models import strategy_of
from keras_ipu.stock.ownership import on_device


def add_methods(model_class: Any) -> None:
    """Adds the methods to `tf_keras.Model`, once; models made outside a scope do not have them."""
    parts = (*vars(OptionMethods).items(), *vars(StageMethods).items())
    methods = {name: method for name, method in parts if not name.startswith("_")}
    for name, method in {**methods, "set_asynchronous_callbacks": _set_asynchronous_callbacks}.items():
        replace_in(model_class, name, functools.partial(_attribute, name, method), missing=None, by=__name__)


class _ModelMethod:
    """A method that only models of an `IPUStrategy`'s scope have.

    Args:
        name: of the method.
        method: takes the model, then its arguments.
    """

    def __init__(self, name: str, method: Callable[..., Any]) -> None:
        self._name = name
        self._method = method

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is not None and on_device(strategy_of(instance)):
            return functools.partial(self._method, instance)
        raise AttributeError(
            f"{owner.__name__!r} object has no attribute {self._name!r}: only models of an `IPUStrategy`'s scope "
            "have it."
        )


def _attribute(name: str, method: Callable[..., Any], absent: None) -> _ModelMethod:
    return _ModelMethod(name, method)


def _set_asynchronous_callbacks(model: Any, asynchronous: bool = False) -> None:
    """Refuses callbacks for every step of an execution.

    Args:
        asynchronous: False, as it is anyway.

    Raises:
        EmulationError: for True.
    """
    if asynchronous:
        raise EmulationError(
            "Callbacks of Keras 2's models are called between executions. Received: asynchronous=True for "
            f"{model.name}. Make the model with `keras`, which has asynchronous callbacks."
        )
