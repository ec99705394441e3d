"""`IPUOptions`: options of an IPU model as one frozen object."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Mapping
from typing import Any


class ReplicatedMetricReductionMethod(enum.Enum):
    """Reduction method of metrics over replicas.

    * NONE: the last replica's value.
    * LIST: a list with every replica's value.
    * SUM: the sum over the replicas.
    * MEAN: the mean over the replicas.
    """

    NONE = 1
    LIST = 2
    SUM = 3
    MEAN = 4

    @classmethod
    def parse(cls, value: Any) -> ReplicatedMetricReductionMethod:
        """The method for a member or the name of one, in any case.

        Raises:
            ValueError: for anything else.

        Example:
            >>> ReplicatedMetricReductionMethod.parse("mean")
            <ReplicatedMetricReductionMethod.MEAN: 4>
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str) and value.upper() in cls.__members__:
            return cls[value.upper()]
        raise ValueError(
            f"Cannot parse {value} as a ReplicatedMetricReductionMethod. Valid values are: "
            f"{', '.join(cls.__members__)}."
        )


def _nothing() -> Mapping[str, Any]:
    return types.MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class IPUOptions:
    """Options of an IPU model, with their defaults.

    Attributes:
        asynchronous_callbacks: whether callbacks run for every step of an execution while the device still computes.
        replicated_metric_reduction: what becomes of metrics of several replicas.
        gradient_accumulation_steps: steps a weight update accumulates gradients over, where the model is not
            pipelined; None is one.
        gradient_accumulation_reduction: "SUM", "MEAN" or "RUNNING_MEAN", for pipelined models as well.
        use_v2_gradient_accumulation_optimizer: whether Keras's optimizer itself is wrapped. The numbers are the same.
        gradient_accumulation_kwargs: further arguments of the accumulating optimizer. Not saved with the model.
        pipelining_gradient_accumulation_steps: the same as `gradient_accumulation_steps` for a pipelined model.
        pipelining_device_mapping: stage -> IPU, or None for one IPU a stage.
        pipelining_accumulate_outfeed: whether metrics are averaged on the device over an execution.
        pipelining_kwargs: further arguments of `pipelining_ops.pipeline`. Not saved with the model.
        infeed_kwargs: arguments of the infeed queues.
        outfeed_kwargs: arguments of the outfeed queues.
    """

    asynchronous_callbacks: bool = False
    replicated_metric_reduction: ReplicatedMetricReductionMethod = ReplicatedMetricReductionMethod.NONE
    gradient_accumulation_steps: int | None = None
    gradient_accumulation_reduction: str = "SUM"
    use_v2_gradient_accumulation_optimizer: bool = False
    gradient_accumulation_kwargs: Mapping[str, Any] = dataclasses.field(default_factory=_nothing)
    pipelining_gradient_accumulation_steps: int | None = None
    pipelining_device_mapping: tuple[int, ...] | None = None
    pipelining_accumulate_outfeed: bool | None = None
    pipelining_kwargs: Mapping[str, Any] = dataclasses.field(default_factory=_nothing)
    infeed_kwargs: Mapping[str, Any] = dataclasses.field(default_factory=_nothing)
    outfeed_kwargs: Mapping[str, Any] = dataclasses.field(default_factory=_nothing)
