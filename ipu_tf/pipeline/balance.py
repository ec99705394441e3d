"""Finds the partition of layers into stages with the lowest bottleneck cost, exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from ipu_tf.pipeline.span_costs import SpanCosts
from ipu_tf.pipeline.split import LayerCosts, Split, SplitError

#: How much more the dearest stage may cost, where time comes first, for the stages to hold fewer bytes.
_SLACK = 0.05
#: For rounding.
_EPSILON = 1e-12


def split_layers(
    layers: Sequence[LayerCosts],
    stages: int,
    memory_weight: float | None = None,
    stash: Sequence[int] | None = None,
    memory_limit: int | None = None,
) -> Split:
    """Assigns layers to stages, at least one to each, without changing their order.

    Pinned layers stay where they are, and every stage is within `memory_limit`. By default time comes first: the cost
    of a stage is its operations. Of all splits whose dearest stage costs at most 5 % more than it has to, those are
    taken whose largest stage has the fewest bytes. With a `memory_weight` the cost is a mean of operations and bytes,
    each in proportion to what a stage has on average, and the dearest stage is as cheap as it can be. Of what is left
    one is taken whose stages differ least (by the sum of squares).

    Args:
        layers: the layers in the order in which data passes them.
        stages: how many stages there are.
        memory_weight: how much bytes count, from 0 (operations alone) to 1 (bytes alone); time comes first by default.
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
    if memory_weight is not None and not 0 <= memory_weight <= 1:
        raise ValueError(f"memory_weight must be from 0 to 1. Received: {memory_weight}.")
    if len(counts) != stages:
        raise ValueError(f"stash must have an entry for each of the {stages} stages. Received: {len(counts)}.")
    _check_pins(layers, stages)
    costs = SpanCosts(tuple(layers), counts, memory_weight or 0.0, memory_limit)
    unlimited, least = _least(costs, stages)
    if math.isinf(least):
        raise SplitError(_too_little_memory(costs, stages))
    bounds = _best_bounds(costs, stages, least, _SLACK if memory_weight is None and not costs.weight else 0.0)
    shares = tuple(costs.share(stage, start, end) for stage, (start, end) in enumerate(pairwise(bounds)))
    moved = tuple((_moved(costs, bounds, stage, -1), _moved(costs, bounds, stage, 1)) for stage in range(stages - 1))
    return Split(costs.layers, shares, counts, costs.weight, moved, memory_limit, least, unlimited)


def _best_bounds(costs: SpanCosts, stages: int, least: float, slack: float) -> tuple[int, ...]:
    """Returns the boundaries of the best split, from 0 to the number of layers.

    Args:
        costs: of the layers.
        stages: how many there are.
        least: the least that the dearest stage can cost.
        slack: by what share it may cost more, for the largest stage to have fewer bytes.
    """
    most = least * (1 + slack) * (1 + _EPSILON)
    size = math.inf
    if slack:
        size, _ = _cheapest(
            costs,
            stages,
            lambda so_far, *part: max(so_far, costs.bytes(*part)) if costs.cost(*part) <= most else math.inf,
        )

    def add(so_far: float, *part: int) -> float:
        cost = costs.cost(*part)
        return so_far + cost**2 if cost <= most and costs.bytes(*part) <= size else math.inf

    _, bounds = _cheapest(costs, stages, add)
    return bounds


def _least(costs: SpanCosts, stages: int) -> tuple[float, float]:
    """Returns the least cost of the dearest stage without the limit of memory, and within it; infinite for no split."""

    def dearest(within: SpanCosts) -> tuple[float, tuple[int, ...]]:
        return _cheapest(within, stages, lambda so_far, *part: max(so_far, within.cost(*part)))

    unlimited, bounds = dearest(SpanCosts(costs.layers, costs.stash, costs.weight, None))
    fits = all(costs.allowed(stage, *part) for stage, part in enumerate(pairwise(bounds)))
    return unlimited, unlimited if fits else dearest(costs)[0]


def _cheapest(costs: SpanCosts, stages: int, add: Callable[..., float]) -> tuple[float, tuple[int, ...]]:
    """Returns the least total of the stages over all splits, and the boundaries that have it.

    Args:
        costs: of the layers.
        stages: how many there are.
        add: takes a total, a stage, its first layer and the one after its last; gives the total with that stage.
    """
    layers = len(costs.layers)
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, (0,))] + [(math.inf, ())] * layers
    for stage in range(stages):
        after: list[tuple[float, tuple[int, ...]]] = [(math.inf, ())] * (layers + 1)
        for end in range(1, layers + 1):
            for start in range(end):
                total, bounds = best[start]
                if math.isinf(total):
                    continue
                total = add(total, stage, start, end)
                if total < after[end][0]:
                    after[end] = total, (*bounds, end)
        best = after
    return best[layers]


def _moved(costs: SpanCosts, bounds: tuple[int, ...], stage: int, by: int) -> float:
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


def _too_little_memory(costs: SpanCosts, stages: int) -> str:
    """Why a memory limit leaves no split; by the first layer that fits into no stage alone, if there is one."""
    for number, layer in enumerate(costs.layers):
        least = min(costs.bytes(stage, number, number + 1) for stage in range(stages) if layer.stage in (None, stage))
        if costs.limit is not None and least > costs.limit:
            return f"Layer '{layer.name}' alone needs {least} bytes, and memory_limit is {costs.limit} bytes."
    return (
        f"No split into {stages} stages keeps each within the memory_limit of {costs.limit} bytes. Allow more, use "
        "more stages, or stash less (recomputation, another schedule)."
    )
