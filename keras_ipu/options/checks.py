"""Checks arguments of the `set_..._options` methods: those that Keras gives itself are refused, others by the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from keras_ipu.options.option_table import (
    AUTOMATIC_PIPELINING,
    EXPLICIT_PIPELINING,
    INCOMPATIBLE_PIPELINING,
    checked_arguments,
)

_AUTOMATIC = "Found `{}` key in `{}`. This argument is automatically set by Keras."
_INCOMPATIBLE = "Found `{}` key in `{}`. This argument is not compatible with Keras."
_NORMALIZE = (
    "Found `experimental_normalize_gradients` argument to `{}`. This argument has now been removed, use "
    "`gradient_accumulation_reduction_method` instead."
)


def checked_accumulation_kwargs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Checks further arguments of the optimizer that accumulates gradients.

    Raises:
        ValueError: for arguments that are set in other ways.
        TypeError: for arguments that the optimizer does not take, or of another type.
    """
    found = "Found `{}` key in `gradient_accumulation_optimizer_kwargs`. "
    if "opt" in kwargs:
        raise ValueError(
            found.format("opt") + "This is not supported as the optimizer which the model has been compiled with is "
            "automatically wrapped."
        )
    if "num_mini_batches" in kwargs:
        raise ValueError(
            found.format("num_mini_batches") + "Set the `gradient_accumulation_steps_per_replica` argument to "
            "`set_gradient_accumulation_options` instead."
        )
    if "experimental_normalize_gradients" in kwargs:
        raise ValueError(_NORMALIZE.format("set_gradient_accumulation_options"))
    return checked_arguments("set_gradient_accumulation_options", dict(kwargs))


def checked_pipelining_kwargs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Checks further arguments of `pipelining_ops.pipeline`.

    Returns:
        Them, with `gradient_accumulation_for_captured_grads=False` unless it was given.

    Raises:
        ValueError: for arguments that are set in other ways or make no sense with Keras.
        TypeError: for arguments that `pipeline` does not take, or of another type.
    """
    for explicit, argument in EXPLICIT_PIPELINING.items():
        if explicit in kwargs:
            raise ValueError(
                f"Found `{explicit}` key in `pipelining_kwargs`. Set the `{argument}` argument to "
                "`set_pipelining_options` instead."
            )
    _refuse(_AUTOMATIC, AUTOMATIC_PIPELINING, "pipelining_kwargs", kwargs)
    _refuse(_INCOMPATIBLE, INCOMPATIBLE_PIPELINING, "pipelining_kwargs", kwargs)
    if "experimental_normalize_gradients" in kwargs:
        raise ValueError(_NORMALIZE.format("set_pipelining_options"))
    return {
        "gradient_accumulation_for_captured_grads": False,
        **checked_arguments("set_pipelining_options", dict(kwargs)),
    }


def checked_infeed_kwargs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Checks arguments of the infeed queues of Keras models.

    Raises:
        ValueError: for arguments that Keras sets itself, or a depth out of range.
        TypeError: for arguments that a queue does not have, or of another type.
    """
    _refuse(_AUTOMATIC, ("dataset", "infeed_spec", "element_spec"), "kwargs", kwargs)
    _refuse(_INCOMPATIBLE, ("_internal_id",), "kwargs", kwargs)
    return checked_arguments("set_infeed_queue_options", dict(kwargs))


def checked_outfeed_kwargs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Checks arguments of the outfeed queues of Keras models.

    Raises:
        ValueError: for arguments that make no sense with Keras.
        TypeError: for arguments that a queue does not have, or of another type.
    """
    _refuse(_INCOMPATIBLE, ("outfeed_mode", "device_ordinal"), "kwargs", kwargs)
    return checked_arguments("set_outfeed_queue_options", dict(kwargs))


def _refuse(text: str, names: Iterable[str], where: str, kwargs: Mapping[str, Any]) -> None:
    for name in names:
        if name in kwargs:
            raise ValueError(text.format(name, where))
