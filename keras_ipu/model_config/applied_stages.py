"""Applies the stages of an `IPUModelConfig` to a model, and checks its device."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any

from ipu_tf._config.state import require_device
from ipu_tf.ops.pipelining_ops import RecomputationMode
from keras_ipu.model_config.block_stages import model_blocks
from keras_ipu.model_config.consistency import IncompatibleIPUConfigError
from keras_ipu.options.model_state import options_of, set_options
from keras_ipu.pipeline.assigned_stages import assign, default_assignments, nested_assignments


def apply_stages(config: Any, model: Any, patterns: Sequence[str] | None) -> None:
    """Sets the stages and options of a pipelined model.

    Args:
        config: the `IPUModelConfig`.
        model: the model, built.
        patterns: names of the layers with which blocks begin, or None.

    Raises:
        ValueError: if the model has no such layers; as `IncompatibleIPUConfigError` if it has another number of blocks.
    """
    blocks = model_blocks(model, patterns)
    try:
        found = blocks.on_ipus(config.layers_for(len(blocks.starts)))
    except IncompatibleIPUConfigError as error:
        raise IncompatibleIPUConfigError(f"{error} Its blocks begin with: {', '.join(blocks.names)}.") from None
    assignments = default_assignments(model)
    for each, stage in zip(nested_assignments(assignments), found.stages, strict=True):
        each.pipeline_stage = stage
    assign(model, assignments)
    set_options(
        model,
        pipelining_device_mapping=found.mapping,
        pipelining_gradient_accumulation_steps=config.gradient_accumulation_steps,
        gradient_accumulation_reduction="MEAN",
        pipelining_kwargs=types.MappingProxyType(
            _recomputed(options_of(model).pipelining_kwargs, config.recompute_checkpoint_every_layer)
        ),
    )


def _recomputed(kwargs: Mapping[str, Any], recompute: bool) -> dict[str, Any]:
    """Returns arguments of a pipeline with the configuration's recomputation, or without that of an earlier one."""
    ours = RecomputationMode.RecomputeThenBackpropagate
    if recompute:
        return {**kwargs, "recomputation_mode": ours}
    return {name: value for name, value in kwargs.items() if (name, value) != ("recomputation_mode", ours)}


def check_device(config: Any, ordinal: int) -> None:
    """Checks that a device has as many IPUs as all replicas of a configuration take.

    Raises:
        IncompatibleIPUConfigError: if it has not.
    """
    has = require_device(ordinal).num_ipus
    if has != config.num_ipus:
        raise IncompatibleIPUConfigError(
            f"{config.replication_factor} replicas of {config.ipus_per_replica} IPUs each take {config.num_ipus}, and "
            f"/device:IPU:{ordinal} has {has}. `config.ipu_config().configure_ipu_system()` configures them."
        )
