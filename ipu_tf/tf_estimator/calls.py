"""Calls `model_fn` and `input_fn` with the arguments they declare."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

_MODEL_ARGUMENTS = ("features", "labels", "mode", "params", "config", "self")
_KINDS = inspect.Parameter


def argument_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the argument names of a function, without those bound by a `functools.partial`.

    Example:
        >>> argument_names(lambda features, mode: None)
        ('features', 'mode')
    """
    bound = function.keywords if isinstance(function, functools.partial) else {}
    parameters = inspect.signature(function).parameters.values()
    plain = [p.name for p in parameters if p.kind not in (_KINDS.VAR_POSITIONAL, _KINDS.VAR_KEYWORD)]
    return tuple(name for name in plain if name not in bound)


def call_with(function: Callable[..., Any], available: dict[str, Any]) -> Any:
    """Calls a function with those of the `available` arguments that it declares."""
    names = argument_names(function)
    return function(**{name: value for name, value in available.items() if name in names})


def check_model_fn(model_fn: Callable[..., Any], params: Any) -> None:
    """Checks that a `model_fn` declares the arguments that an estimator passes.

    Raises:
        ValueError: if it lacks `features`, lacks `params` where there are some, or has further required arguments.
    """
    names = argument_names(model_fn)
    if "features" not in names:
        raise ValueError(f"model_fn ({model_fn}) must include features argument.")
    if params is not None and "params" not in names:
        raise ValueError(
            f"model_fn ({model_fn}) does not include params argument, but params ({params}) is passed to Estimator."
        )
    unknown = [name for name in names if name not in _MODEL_ARGUMENTS]
    if unknown:
        raise ValueError(f"model_fn ({model_fn}) has following not expected args: {unknown}")


def call_model_fn(
    model_fn: Callable[..., Any], features: Any, labels: Any, mode: str, params: dict[str, Any], config: Any
) -> Any:
    """Calls a `model_fn` with features and labels.

    Raises:
        ValueError: if there are labels and it takes none.
    """
    if labels is not None and "labels" not in argument_names(model_fn):
        raise ValueError("model_fn does not take labels, but input_fn returns labels.")
    available = {"features": features, "labels": labels, "mode": mode, "params": params, "config": config}
    return call_with(model_fn, available)
