"""Finds the partition of layers into stages with the lowest bottleneck cost, exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

from ipu_tf.pipeline.split import LayerCosts, Share, Split, SplitError


def split_layers(
    layers: Sequence[LayerCosts],
    stages: int,
    memory_weight: float = 0.5,
    stash: Sequence[int] | None = None,
    memory_limit: int | None = None,
) -> Split:
    """Assigns layers to stages, at least one to each, without changing their order.

    The cost of a stage is a mean of its operations and of its bytes, each in proportion to what a stage has on average.
    Of all splits that keep pinned layers where they are, one is taken whose dearest stage is cheapest and, of those,
    one whose stages differ least (by the sum of squares).

    Args:
        layers: the layers in the order in which data passes them.
        stages: how many stages there are.
        memory_weight: how much bytes count, from 0 (operations alone) to 1 (bytes alone).
        stash: for each stage how many micro-batches it stashes, such as `peak_stash` of a timetable; 1 each by default.
        memory_limit: the most bytes a stage may hold; unlimited by default.

    Raises:
        SplitError: no split is possible, and why.
        ValueError: a weight that is not from 0 to 1, or another number of stash entries than stages.

    Example:
        >>> layers = [LayerCosts(name, flops) for name, flops in [("a", 4), ("b", 1), ("c", 1), ("d", 6)]]
        >>> split_layers(layers, 2).assignment
        (0, 0, 0, 1)
    """
    counts = tuple(stash) if stash is not None else (1,) * stages
    if not 0 <= memory_weight <= 1:
        raise ValueError(f"memory_weight must be from 0 to 1. Received: {memory_weight}.")
    if len(counts) != stages:
        raise ValueError(f"stash must have an entry for each of the {stages} stages. Received: {len(counts)}.")
    _check_pins(layers, stages)
    costs = _Costs(tuple(layers), counts, memory_weight, memory_limit)
    bounds = _best_bounds(costs, len(layers), stages)
    if bounds is None:
        raise SplitError(_too_little_memory(costs, stages))
    shares = tuple(costs.share(stage, start, end) for stage, (start, end) in enumerate(pairwise(bounds)))
    moved = tuple((_moved(costs, bounds, stage, -1), _moved(costs, bounds, stage, 1)) for stage in range(stages - 1))
    return Split(tuple(layers), shares, counts, costs.weight, moved)


class _Costs:
    """Costs of contiguous layers as a stage, by prefix sums."""

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


def _best_bounds(costs: _Costs, layers: int, stages: int) -> tuple[int, ...] | None:
    """The boundaries of the best split, from 0 to the number of layers; None if there is none."""
    dearest, _ = _cheapest(costs, layers, stages, lambda so_far, cost: max(so_far, cost))
    if math.isinf(dearest):
        return None
    # The second pass keeps within what the first found (but for rounding), so that its sums need not carry the maximum.
    limit = dearest * (1 + 1e-12)
    _, bounds = _cheapest(costs, layers, stages, lambda so_far, cost: so_far + cost**2 if cost <= limit else math.inf)
    return bounds


def _cheapest(
    costs: _Costs, layers: int, stages: int, add: Callable[[float, float], float]
) -> tuple[float, tuple[int, ...]]:
    """The least total, by `add`, of the stages' costs over all splits, and the boundaries that have it."""
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, (0,))] + [(math.inf, ())] * layers
    for stage in range(stages):
        after: list[tuple[float, tuple[int, ...]]] = [(math.inf, ())] * (layers + 1)
        for end in range(1, layers + 1):
            for start in range(end):
                total, bounds = best[start]
                if math.isinf(total):
                    continue
                total = add(total, costs.cost(stage, start, end))
                if total < after[end][0]:
                    after[end] = total, (*bounds, end)
        best = after
    return best[layers]


def _moved(costs: _Costs, bounds: tuple[int, ...], stage: int, by: int) -> float:
    """The cost of the dearer of two neighbouring stages if the boundary after `stage` moved by some layers."""
    start, boundary, end = bounds[stage : stage + 3]
    return max(costs.cost(stage, start, boundary + by), costs.cost(stage + 1, boundary + by, end))


def _check_pins(layers: Sequence[LayerCosts], stages: int) -> None:
    """Refuses pins that leave no split, memory aside."""
    if stages < 1 or len(layers) < stages:
        raise SplitError(
            f"{stages} stages need at least as many layers, and at least 1. Received: {len(layers)} layers."
        )
    # Before the first layer and after the last, as if a layer of stage -1 and one of stage `stages` were pinned there.
    pins = [(-1, -1, "the start")]
    for number, layer in enumerate(layers):
        if layer.stage is not None:
            if not 0 <= layer.stage < stages:
                raise SplitError(f"Layer '{layer.name}' is pinned to stage {layer.stage} of {stages} stages.")
            pins.append((number, layer.stage, f"layer '{layer.name}' in stage {layer.stage}"))
    pins.append((len(layers), stages, "the end"))
    for (first, low, before), (second, high, after) in pairwise(pins):
        if high < low:
            raise SplitError(f"Stages cannot decrease along the layers, but {after} comes after {before}.")
        if second - first < high - low:
            raise SplitError(
                f"Between {before} and {after} every stage needs a layer: {high - low - 1} are needed there, and there "
                f"are {second - first - 1}."
            )


def _too_little_memory(costs: _Costs, stages: int) -> str:
    """Why a memory limit leaves no split; by the first layer that fits into no stage alone, if there is one."""
    for number, layer in enumerate(costs.layers):
        least = min(costs.bytes(stage, number, number + 1) for stage in range(stages) if layer.stage in (None, stage))
        if costs.limit is not None and least > costs.limit:
            return f"Layer '{layer.name}' alone needs {least} bytes, and memory_limit is {costs.limit} bytes."
    return (
        f"No split into {stages} stages keeps each within the memory_limit of {costs.limit} bytes. Allow more, use "
        "more stages, or stash less (recomputation, another schedule)."
    )
