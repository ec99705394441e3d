"""`SpanCosts`: costs of contiguous layers as one stage, which a partition into stages balances."""

from __future__ import annotations

import math
from itertools import accumulate

from ipu_tf.pipeline.split import LayerCosts, Share


class SpanCosts:
    """Costs of contiguous layers as a stage, by prefix sums.

    Args:
        layers: the layers, in order.
        stash: for each stage how many micro-batches it stashes.
        weight: how much bytes count against operations, 0 to 1.
        limit: the most bytes of a stage; None for no limit.
    """

    def __init__(
        self, layers: tuple[LayerCosts, ...], stash: tuple[int, ...], weight: float, limit: int | None
    ) -> None:
        self.layers, self.stash, self.limit = layers, stash, limit
        self._flops = list(accumulate((layer.flops for layer in layers), initial=0.0))
        self._parameters = list(accumulate((layer.parameter_bytes for layer in layers), initial=0))
        self._activations = list(accumulate((layer.activation_bytes for layer in layers), initial=0))
        stages = len(stash)
        # For each stage how many layers, up to each, are pinned to another stage.
        self._elsewhere = [
            list(accumulate((layer.stage not in (None, stage) for layer in layers), initial=0))
            for stage in range(stages)
        ]
        mean_bytes = (self._parameters[-1] + self._activations[-1] * sum(stash) / stages) / stages
        # Where there are no operations, or no bytes, the other is all there is to balance.
        self.weight = 0.0 if not mean_bytes else 1.0 if not self._flops[-1] else weight
        self._per_flop = (1 - self.weight) * stages / self._flops[-1] if self._flops[-1] else 0.0
        self._per_byte = self.weight / mean_bytes if mean_bytes else 0.0

    def bytes(self, stage: int, start: int, end: int) -> int:
        """The bytes of layers `start` to `end` as a stage."""
        parameters = self._parameters[end] - self._parameters[start]
        return parameters + self.stash[stage] * (self._activations[end] - self._activations[start])

    def allowed(self, stage: int, start: int, end: int) -> bool:
        """Returns whether layers can be a stage: not empty, none pinned elsewhere, within the memory limit."""
        if start >= end or (self.limit is not None and self.bytes(stage, start, end) > self.limit):
            return False
        return self._elsewhere[stage][start] == self._elsewhere[stage][end]

    def cost(self, stage: int, start: int, end: int) -> float:
        """Returns the cost of layers as a stage, which the partition balances; infinite if they are not allowed."""
        if not self.allowed(stage, start, end):
            return math.inf
        flops = self._flops[end] - self._flops[start]
        return flops * self._per_flop + self.bytes(stage, start, end) * self._per_byte

    def share(self, stage: int, start: int, end: int) -> Share:
        """Returns those layers as that stage of the result."""
        flops = (self._flops[end] - self._flops[start]) / self._flops[-1] if self._flops[-1] else 0.0
        return Share(start, end, flops, self.bytes(stage, start, end), self.cost(stage, start, end))
