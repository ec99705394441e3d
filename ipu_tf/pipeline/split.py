"""`LayerCosts`, and `Split`: the partition of layers into stages."""

from __future__ import annotations

import dataclasses


class SplitError(ValueError):
    """Raised if no partition meets the constraints: too few layers, contradicting pins, or too little memory."""


@dataclasses.dataclass(frozen=True)
class LayerCosts:
    """Costs of a layer, estimated or measured.

    Attributes:
        name: its name.
        flops: floating-point operations of its forward pass on one micro-batch; seconds do as well, if they are used
            for all layers.
        parameter_bytes: bytes it has all the time: variables, and what training adds to them.
        activation_bytes: bytes a micro-batch leaves in it until its backward pass.
        stage: the stage it must be in; None to leave that to the split.
    """

    name: str
    flops: float
    parameter_bytes: int = 0
    activation_bytes: int = 0
    stage: int | None = None


@dataclasses.dataclass(frozen=True)
class Share:
    """Layers of one stage of a partition, and their costs.

    Attributes:
        start: the first of its layers.
        end: the first layer after them.
        flops_share: its share of all operations, 0 to 1.
        bytes: the bytes it holds: its parameters, and its activations as often as it stashes micro-batches.
        cost: what the split balances: operations and bytes, weighted; the mean stage has about 1.
    """

    start: int
    end: int
    flops_share: float
    bytes: int
    cost: float


@dataclasses.dataclass(frozen=True)
class Split:
    """Partition of layers into stages.

    Attributes:
        layers: the layers, in order.
        shares: what each stage got, in order.
        stash: how many micro-batches each stage stashes.
        memory_weight: how much bytes counted against operations, 0 to 1; 0 if time came first or no layer has bytes,
            1 if none has operations.
        moved: for each boundary between stages (the first layer after it) the cost of the dearer of its two stages if
            it were one layer earlier, and one layer later; infinite where that is not allowed.
        memory_limit: the bytes that a stage should hold at most; None for no limit.
        least: what the dearest stage costs at least within the limit; if time came first it may cost a little more.
        unlimited: the same without a limit.
        device_mapping: the IPU of each stage where two stages are on one IPU; `shares` are then those of IPUs, and the
            first of `layers` are the last stage's and the first one's. Else empty: a stage an IPU.
    """

    layers: tuple[LayerCosts, ...]
    shares: tuple[Share, ...]
    stash: tuple[int, ...]
    memory_weight: float
    moved: tuple[tuple[float, float], ...]
    memory_limit: int | None
    least: float
    unlimited: float
    device_mapping: tuple[int, ...] = ()

    @property
    def assignment(self) -> tuple[int, ...]:
        """The stage of each layer; with a `device_mapping` its IPU."""
        return tuple(stage for stage, share in enumerate(self.shares) for _ in range(share.start, share.end))

    @property
    def bottleneck(self) -> int:
        """The dearest stage, the first if there are several."""
        costs = [share.cost for share in self.shares]
        return costs.index(max(costs))
