"""`IPUOptions`: options of an IPU model as one frozen object, and checks of single ones."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Mapping
from typing import Any

from ipu_tf._arguments.counts import INT32_MAX, as_integer

REDUCTIONS = ("SUM", "MEAN", "RUNNING_MEAN")
"""Names of the ways in which gradients of micro-batches become one."""


class ReplicatedMetricReductionMethod(enum.Enum):
    """Reduction method of metrics over replicas, each of which counts its own batches.

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
        replicated_metric_reduction: what becomes of metrics of several replicas. None: they count the batches of all,
            as stock Keras's do; under Graphcore's rules it is NONE.
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
    replicated_metric_reduction: ReplicatedMetricReductionMethod | None = None
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

    @property
    def says_pipeline(self) -> bool:
        """Whether options of pipelines were set, so that the model is meant to be one."""
        steps, mapping = self.pipelining_gradient_accumulation_steps, self.pipelining_device_mapping
        given = (steps, mapping, self.pipelining_accumulate_outfeed)
        return any(each is not None for each in given) or bool(self.pipelining_kwargs)

    @property
    def log_reduction(self) -> ReplicatedMetricReductionMethod:
        """How the logs of replicas are reduced; those of joint metrics are all equal."""
        return self.replicated_metric_reduction or ReplicatedMetricReductionMethod.NONE


def checked_accumulation_steps(steps: Any) -> int | None:
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
    if number > INT32_MAX:
        raise ValueError(f"`gradient_accumulation_steps_per_replica` must be at most {INT32_MAX}. Received: {number}.")
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
    if isinstance(name, str) and name.upper() in REDUCTIONS:
        return name.upper()
    raise ValueError(
        f"Cannot parse {method} as one of GradientAccumulationReductionMethod. Valid values are: "
        f"{', '.join(REDUCTIONS)}."
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
    if any(not 0 <= ipu <= INT32_MAX for ipu in ipus):
        raise ValueError(f"Expected `device_mapping` to hold numbers of IPUs, from 0 on. Received: {mapping!r}.")
    return ipus
