"""Checks arguments of fit, evaluate and predict that are counts, e.g. `epochs` and `steps_per_epoch`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ipu_tf._arguments.counts import checked_count

_LEAST = {
    "batch_size": 1,
    "epochs": 0,
    "initial_epoch": 0,
    "steps": 1,
    "steps_per_epoch": 1,
    "validation_batch_size": 1,
    "validation_steps": 1,
}


def checked_arguments(
    method: Callable[..., Any], model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of fit, evaluate or predict, with counts checked and as Python's ints.

    Numbers of epochs may be 0, as in stock Keras; what is left at None stays so. `validation_freq` may also be a list
    of epochs, which is passed on unchanged.

    Args:
        method: `Model.fit`, `evaluate` or `predict`.
        model: whose method it is.
        args: the positional arguments after the model.
        kwargs: the others.

    Raises:
        TypeError: for a count that is no whole number, or arguments that the method does not take.
        ValueError: for a count out of range.
    """
    bound = inspect.signature(method).bind(model, *args, **kwargs)
    given = bound.arguments
    for name, least in _LEAST.items():
        if given.get(name) is not None:
            given[name] = checked_count(name, given[name], least)
    if isinstance(given.get("validation_freq"), (int, float, str)):
        given["validation_freq"] = checked_count("validation_freq", given["validation_freq"])
    return bound.args[1:], bound.kwargs
