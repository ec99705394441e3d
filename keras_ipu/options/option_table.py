"""Table of the arguments of the `set_..._options` methods of Keras models: type, range, default, effect."""

from __future__ import annotations

import dataclasses
from typing import Any

from ipu_tf._config.argument_table import Argument, ArgumentTable
from ipu_tf._config.treatment import modelled, no_effect
from ipu_tf._config.types import FLAG, TEXT, integer, member, sequence_of
from ipu_tf._pipelining.pipeline_table import DTYPE, PIPELINE
from ipu_tf._tracing.queue_arguments import INFEED, OUTFEED
from ipu_tf.gradient_accumulation import GradientAccumulationReductionMethod
from keras_ipu.options.options import (
    ReplicatedMetricReductionMethod,
    checked_accumulation_steps,
    checked_device_mapping,
    checked_reduction,
)

AUTOMATIC_PIPELINING = (
    "computational_stages",
    "repeat_count",
    "inputs",
    "infeed_queue",
    "outfeed_queue",
    "optimizer_function",
)
"""Arguments of `pipelining_ops.pipeline` that Keras gives."""
INCOMPATIBLE_PIPELINING = ("outfeed_loss", "outfeed_mask", "batch_serialization_iterations")
"""Those that make no sense with Keras."""
EXPLICIT_PIPELINING = {
    "gradient_accumulation_count": "gradient_accumulation_steps_per_replica",
    "device_mapping": "device_mapping",
    "accumulate_outfeed": "accumulate_outfeed",
    "reduction_method": "gradient_accumulation_reduction_method",
}
"""Those that are arguments of `set_pipelining_options` themselves, with their names there."""
_WORKS = modelled("It works.")
_MEMORY = no_effect("It says where the IPU keeps data; results do not depend on it.")
_OWN_QUEUES = no_effect("Models use the device of their strategy, and feed it without a queue.")


def _steps(meaning: str) -> Argument:
    return Argument(
        "gradient_accumulation_steps_per_replica", integer(1), None, meaning, _WORKS, checked_accumulation_steps
    )


_REDUCTION = Argument(
    "gradient_accumulation_reduction_method",
    member(GradientAccumulationReductionMethod),
    "sum",
    "How gradients of micro-batches become one: a member, or its name in any case.",
    _WORKS,
    checked_reduction,
)
_MAPPING = Argument(
    "device_mapping",
    sequence_of("list of ints", lambda value: integer().accepts(value)),
    None,
    "The IPU of each stage, from 0 on; None for stage i on IPU i.",
    _WORKS,
    checked_device_mapping,
)


_UNREAD = no_effect("Steps of Keras models do not read it.")
_OF_KERAS: dict[str, dict[str, Any]] = {
    "gradient_accumulation_for_captured_grads": {"default": False, "treatment": _UNREAD},
    "accumulate_outfeed_dtype": {"treatment": _UNREAD},
    "name": {"treatment": _UNREAD},
}
"""How arguments of `pipeline` differ for Keras models."""


def _without_effect(*rows: Argument) -> tuple[Argument, ...]:
    return tuple(dataclasses.replace(row, treatment=_OWN_QUEUES) for row in rows)


def _passed_on() -> tuple[Argument, ...]:
    """Rows of the arguments that `set_pipelining_options` takes as further ones."""
    elsewhere = {*AUTOMATIC_PIPELINING, *INCOMPATIBLE_PIPELINING, *EXPLICIT_PIPELINING}
    rows = (row for row in PIPELINE.arguments if row.name not in elsewhere)
    return tuple(dataclasses.replace(row, **_OF_KERAS.get(row.name, {})) for row in rows)


ACCUMULATION = ArgumentTable(
    "set_gradient_accumulation_options",
    (
        _steps("Steps that a weight update of a model without stages accumulates over; None keeps what was set."),
        _REDUCTION,
        Argument(
            "use_v2_gradient_accumulation_optimizer",
            FLAG,
            False,
            "Whether Keras's optimizer itself is wrapped.",
            no_effect("The numbers are the same."),
        ),
        Argument("dtype", DTYPE, None, "Of the accumulators; None for each gradient's.", _WORKS),
        Argument("name", TEXT, None, "Of the wrapping optimizer.", no_effect("There is no such optimizer.")),
        Argument("offload_weight_update_variables", FLAG, None, "Whether slots are in remote memory.", _MEMORY),
        Argument("replicated_optimizer_state_sharding", FLAG, False, "Whether replicas share the slots.", _MEMORY),
    ),
)
PIPELINING = ArgumentTable(
    "set_pipelining_options",
    (
        _steps("Steps that a weight update of a pipelined model accumulates over; `fit` needs it."),
        _MAPPING,
        Argument(
            "accumulate_outfeed",
            FLAG,
            None,
            "Whether metrics are averaged on the device; None keeps what was set.",
            _WORKS,
        ),
        _REDUCTION,
        *_passed_on(),
    ),
)
METHODS: dict[str, ArgumentTable] = {
    table.function: table
    for table in (
        ArgumentTable(
            "set_asynchronous_callbacks",
            (
                Argument(
                    "asynchronous",
                    FLAG,
                    False,
                    "Whether callbacks run for every step while the device still computes.",
                    _WORKS,
                ),
            ),
        ),
        ArgumentTable(
            "set_replication_options",
            (
                Argument(
                    "replicated_metric_reduction_method",
                    member(ReplicatedMetricReductionMethod),
                    "NONE",
                    "How metrics of replicas become one: a member, or its name in any case.",
                    _WORKS,
                    ReplicatedMetricReductionMethod.parse,
                ),
            ),
        ),
        ACCUMULATION,
        PIPELINING,
        ArgumentTable("set_infeed_queue_options", _without_effect(*INFEED.arguments)),
        ArgumentTable(
            "set_outfeed_queue_options", _without_effect(OUTFEED["buffer_depth"], OUTFEED["optimise_latency"])
        ),
    )
}
"""By the name of the method."""


def checked_arguments(method: str, given: dict[str, Any]) -> dict[str, Any]:
    """Checks arguments of a `set_..._options` method by its table, and returns them as plain Python values.

    Raises:
        TypeError: for an unknown name, with the known one that is most like it, or a value of another type.
        ValueError: for a value out of range.
    """
    return METHODS[method].check(given)
