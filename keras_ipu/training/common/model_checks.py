"""Checks a model before `fit`, `evaluate` and `predict`, on every backend of Keras."""

from __future__ import annotations

from typing import Any

from ipu_tf._arguments.counts import checked_count
from keras_ipu.stock import hooks as keras_hooks

_OVERRIDDEN = (
    "The function `{function}` for the model {name} has been overridden. This is not supported when using Keras "
    "within an IPUStrategy. Either remove the override from your model definition or set "
    "`enable_keras_extensions=False` when creating the IPUStrategy."
)
_EAGER = "Keras models cannot run eagerly when using `IPUStrategy`. Set `run_eagerly=False` when calling `compile`."


def check_runnable(model: Any) -> None:
    """Checks a model before it runs.

    Raises:
        RuntimeError: if it was compiled to run eagerly, or makes its functions itself.
    """
    for function in ("make_train_function", "make_test_function", "make_predict_function"):
        if keras_hooks.overridden(model, function):
            raise RuntimeError(_OVERRIDDEN.format(function=function, name=model.name))
    if model.compiled and model.run_eagerly:
        raise RuntimeError(_EAGER)


def compile_arguments(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of `compile`, with `steps_per_execution` as a number.

    Raises:
        RuntimeError: if the model is to run eagerly.
        TypeError, ValueError: for a `steps_per_execution` that is no positive integer.
    """
    if kwargs.get("run_eagerly"):
        raise RuntimeError(_EAGER)
    if "steps_per_execution" not in kwargs:
        return kwargs
    return {**kwargs, "steps_per_execution": checked_count("steps_per_execution", kwargs["steps_per_execution"])}
