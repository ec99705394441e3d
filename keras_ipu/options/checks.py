"""Checks arguments of the `set_..._options` methods."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ipu_tf._arguments.counts import as_integer
from ipu_tf._arguments.known_names import check_known
from ipu_tf._tracing.queue_arguments import checked_buffer_depth, checked_prefetch_depth
from ipu_tf.ops.pipelining_ops import pipeline

_REDUCTIONS = ("SUM", "MEAN", "RUNNING_MEAN")
_AUTOMATIC_PIPELINING = (
    "computational_stages",
    "repeat_count",
    "inputs",
    "infeed_queue",
    "outfeed_queue",
    "optimizer_function",
)
_INCOMPATIBLE_PIPELINING = ("outfeed_loss", "outfeed_mask", "batch_serialization_iterations")
_ACCUMULATION = ("dtype", "name", "offload_weight_update_variables", "replicated_optimizer_state_sharding")
_EXPLICIT_PIPELINING = {
    "gradient_accumulation_count": "gradient_accumulation_steps_per_replica",
    "device_mapping": "device_mapping",
    "accumulate_outfeed": "accumulate_outfeed",
}
_AUTOMATIC = "Found `{}` key in `{}`. This argument is automatically set by Keras."
_INCOMPATIBLE = "Found `{}` key in `{}`. This argument is not compatible with Keras."
_NORMALIZE = (
    "Found `experimental_normalize_gradients` argument to `{}`. This argument has now been removed, use "
    "`gradient_accumulation_reduction_method` instead."
)


def checked_steps(steps: Any) -> int | None:
    """Checks a number of gradient accumulation steps; None stays None.

    Raises:
        ValueError: unless it is a positive integer.
    """
    if steps is None:
        return None
    number = as_integer(steps)
    if number is None or number < 1:
        raise ValueError(
            f"Expected `gradient_accumulation_steps_per_replica` to be a positive integer, but got {steps} instead."
        )
    return number


def checked_reduction(method: Any) -> str:
    """Checks a gradient accumulation reduction method, a name in any case or an enum member; returns its name.

    Raises:
        ValueError: if there is no such method.

    Example:
        >>> checked_reduction("mean")
        'MEAN'
    """
    name = method if isinstance(method, str) else getattr(method, "name", None)
    if isinstance(name, str) and name.upper() in _REDUCTIONS:
        return name.upper()
    raise ValueError(
        f"Cannot parse {method} as one of GradientAccumulationReductionMethod. Valid values are: "
        f"{', '.join(_REDUCTIONS)}."
    )


def checked_device_mapping(mapping: Any) -> tuple[int, ...] | None:
    """Checks the IPU of each pipeline stage; None stays None.

    Raises:
        ValueError: unless it is a list of integers that are not negative.
    """
    if mapping is None:
        return None
    numbers = [as_integer(ipu) for ipu in mapping] if isinstance(mapping, list) else [None]
    if None in numbers:
        raise ValueError(f"Expected `device_mapping` to be a list of integers. Received: {mapping!r}.")
    ipus = tuple(number for number in numbers if number is not None)
    if any(ipu < 0 for ipu in ipus):
        raise ValueError(f"Expected `device_mapping` to hold numbers of IPUs, from 0 on. Received: {mapping!r}.")
    return ipus


def checked_accumulation_kwargs(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Checks further arguments of the optimizer that accumulates gradients.

    Raises:
        ValueError: for arguments that are set in other ways.
        TypeError: for arguments that the optimizer does not take.
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
    check_known("set_gradient_accumulation_options", kwargs, _ACCUMULATION)
    return kwargs


def checked_pipelining_kwargs(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Checks further arguments of `pipelining_ops.pipeline`.

    Returns:
        Them, with `gradient_accumulation_for_captured_grads=False` unless it was given.

    Raises:
        ValueError: for arguments that are set in other ways or make no sense with Keras.
        TypeError: for arguments that `pipeline` does not take.
    """
    for explicit, argument in _EXPLICIT_PIPELINING.items():
        if explicit in kwargs:
            raise ValueError(
                f"Found `{explicit}` key in `pipelining_kwargs`. Set the `{argument}` argument to "
                "`set_pipelining_options` instead."
            )
    _refuse(_AUTOMATIC, _AUTOMATIC_PIPELINING, "pipelining_kwargs", kwargs)
    _refuse(_INCOMPATIBLE, _INCOMPATIBLE_PIPELINING, "pipelining_kwargs", kwargs)
    if "experimental_normalize_gradients" in kwargs:
        raise ValueError(_NORMALIZE.format("set_pipelining_options"))
    check_known("set_pipelining_options", kwargs, _parameters(pipeline))
    return {"gradient_accumulation_for_captured_grads": False, **kwargs}


def checked_infeed_kwargs(kwargs: Mapping[str, Any], queue: Callable[..., Any]) -> Mapping[str, Any]:
    """Checks arguments of the infeed queues of Keras models.

    Args:
        kwargs: the arguments.
        queue: the class of the queues.

    Raises:
        ValueError: for arguments that Keras sets itself, or a depth out of range.
        TypeError: for arguments that a queue does not have.
    """
    _refuse(_AUTOMATIC, ("dataset", "infeed_spec", "element_spec"), "kwargs", kwargs)
    _refuse(_INCOMPATIBLE, ("_internal_id",), "kwargs", kwargs)
    check_known("set_infeed_queue_options", kwargs, _parameters(queue))
    if kwargs.get("prefetch_depth") is not None:
        checked_prefetch_depth(kwargs["prefetch_depth"])
    return kwargs


def checked_outfeed_kwargs(kwargs: Mapping[str, Any], queue: Callable[..., Any]) -> Mapping[str, Any]:
    """Checks arguments of the outfeed queues of Keras models.

    Args:
        kwargs: the arguments.
        queue: the class of the queues.

    Raises:
        ValueError: for arguments that make no sense with Keras.
        TypeError: for arguments that a queue does not have.
    """
    _refuse(_INCOMPATIBLE, ("outfeed_mode", "device_ordinal"), "kwargs", kwargs)
    check_known("set_outfeed_queue_options", kwargs, _parameters(queue))
    if "buffer_depth" in kwargs:
        checked_buffer_depth(kwargs["buffer_depth"])
    return kwargs


def _refuse(text: str, names: Iterable[str], where: str, kwargs: Mapping[str, Any]) -> None:
    for name in names:
        if name in kwargs:
            raise ValueError(text.format(name, where))


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Returns the names of the keyword parameters of a function or class."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [name for name, each in inspect.signature(function).parameters.items() if each.kind in named]
