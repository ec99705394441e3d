"""Methods that models of Keras 2 get in an `IPUStrategy`'s scope: options; those that are refused say so."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ipu_tf._patches.installation import replace_in
from ipu_tf.emulation import EmulationError
from keras_ipu.options.methods import OptionMethods
from keras_ipu.stock.models import strategy_of
from keras_ipu.stock.ownership import on_device

_REFUSED = (
    "set_asynchronous_callbacks",
    "set_pipelining_options",
    "get_pipeline_stage_assignment",
    "set_pipeline_stage_assignment",
    "reset_pipeline_stage_assignment",
    "print_pipeline_stage_assignment_summary",
)


def add_methods(model_class: Any) -> None:
    """Adds the methods to `tf_keras.Model`, once; models made outside a scope do not have them."""
    options = {name: method for name, method in vars(OptionMethods).items() if not name.startswith("_")}
    refused: dict[str, Any] = {name: _refusing(name) for name in _REFUSED}
    for name, method in {**options, **refused}.items():
        replace_in(model_class, name, functools.partial(_attribute, name, method), missing=None, by=__name__)


class _ModelMethod:
    """A method that only models of an `IPUStrategy`'s scope have."""

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


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(model: Any, *args: Any, **kwargs: Any) -> None:
        raise EmulationError(
            f"Models of Keras 2 (`tf_keras`) run in one stage, with callbacks between executions. Received: a call of "
            f"{name} for {model.name}. Make the model with `keras`, which has pipelines and asynchronous callbacks."
        )

    return refuse
