"""Checks the IPU options read from a model's file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from keras_ipu.options.option_table import checked_arguments
from keras_ipu.options.options import REDUCTIONS, ReplicatedMetricReductionMethod

STAGES, STAGES_VALID = "pipeline_stages", "pipeline_stages_valid"
_log = logging.getLogger("ipu_tf")


def checked_options(config: Any, model: str) -> dict[str, Any]:
    """Returns the known options after checking the form of each.

    Args:
        config: as `options_config` gives it.
        model: the name of the model, for errors.

    Returns:
        The known ones. Others, which a newer version may have written, are named in a warning.

    Raises:
        ValueError: if an option is of another form.
    """
    if not isinstance(config, Mapping):
        raise ValueError(f"The saved IPU options of '{model}' must be a dictionary. Received: {config!r:.100}.")
    for name, value in config.items():
        if name in _CHECKS and not _CHECKS[name](value):
            raise ValueError(
                f"The saved IPU option '{name}' of '{model}' is not one that a model was saved with. Save the model "
                f"again. Received: {value!r:.100}."
            )
    if unknown := [name for name in config if name not in _CHECKS]:
        _log.warning("ipu_tf: saved IPU options of '%s' that are not known here are left out: %s", model, unknown)
    return {name: value for name, value in config.items() if name in _CHECKS}


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_count(value: Any) -> bool:
    return value is None or (_is_whole(value) and value > 0)


def _is_mapping(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(map(_is_whole, value)))


def _is_of(method: str) -> Callable[[Any], bool]:
    """Returns a test whether a value is a dictionary of arguments that a `set_..._options` method takes."""

    def test(value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        try:
            checked_arguments(method, value)
        except (TypeError, ValueError):
            return False
        return True

    return test


def _is_stages(value: Any, depth: int = 0) -> bool:
    """Returns whether a value is None or a nested list of stages."""
    if value is None or (depth and _is_whole(value)):
        return True
    return isinstance(value, list) and depth < _DEEPEST and all(_is_stages(each, depth + 1) for each in value)


_DEEPEST = 100
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "asynchronous_callbacks": _is_bool,
    "replicated_metric_reduction": lambda value: value in [*ReplicatedMetricReductionMethod.__members__],
    "gradient_accumulation_steps": _is_count,
    "gradient_accumulation_reduction": lambda value: value in REDUCTIONS,
    "use_v2_gradient_accumulation_optimizer": _is_bool,
    "pipelining_gradient_accumulation_steps": _is_count,
    "pipelining_device_mapping": _is_mapping,
    "pipelining_accumulate_outfeed": lambda value: value is None or isinstance(value, bool),
    "infeed_kwargs": _is_of("set_infeed_queue_options"),
    "outfeed_kwargs": _is_of("set_outfeed_queue_options"),
    STAGES: _is_stages,
    STAGES_VALID: _is_bool,
}
