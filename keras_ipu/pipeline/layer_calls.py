"""`LayerCalls`: calls of a model's layers that are to become stages, and the parts that stay together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ipu_tf.pipeline import LayerCosts, SplitError
from keras_ipu.pipeline.call_costs import CallCost
from keras_ipu.pipeline.shared_variables import variables_of


@dataclasses.dataclass(frozen=True)
class LayerCalls:
    """Layer calls, in order, that are to become stages.

    Attributes:
        costs: of each.
        known: the stage of each, or None.
        stages: how many stages there are to be.
        memory_weight: how much bytes count; None for time first.
    """

    costs: list[CallCost]
    known: list[int | None]
    stages: int
    memory_weight: float | None

    def joined(self, places: Sequence[int]) -> LayerCosts:
        """Joins calls into one unit of the layer partition."""
        return _joined_calls([self.costs[place] for place in places], [self.known[place] for place in places])

    def units(self, start: int, end: int) -> list[range]:
        """Groups consecutive calls, from one place to before another, that share variables."""
        return _units([variables_of(cost.call.layer) for cost in self.costs[start:end]], start)


def both_ends(first: LayerCosts, last: LayerCosts, stash: Sequence[int]) -> LayerCosts:
    """Joins what the first and the last stage share; the last one's activations count as often as it stashes them."""
    return LayerCosts(
        name=f"{last.name} + {first.name}",
        flops=first.flops + last.flops,
        parameter_bytes=first.parameter_bytes + last.parameter_bytes,
        activation_bytes=first.activation_bytes + last.activation_bytes * stash[-1] // max(1, stash[0]),
        stage=0,
    )


def _units(variables: Sequence[frozenset[int]], start: int = 0) -> list[range]:
    """Groups consecutive calls that have to be in one stage: first to last call that uses a variable.

    Args:
        variables: of each call, from place `start` on.
        start: the place of the first call.
    """
    last = {each: place for place, used in enumerate(variables, start) for each in used}
    units: list[range] = []
    for place, used in enumerate(variables, start):
        end = max((last[each] for each in used), default=place) + 1
        if units and place < units[-1].stop:
            units[-1] = range(units[-1].start, max(units[-1].stop, end))
        else:
            units.append(range(place, end))
    return units


def _joined_calls(costs: Sequence[CallCost], stages: Sequence[int | None]) -> LayerCosts:
    """Joins calls that belong together into one unit of the layer partition."""
    name = " + ".join(dict.fromkeys(str(cost.call.layer.name) for cost in costs))
    pinned = {stage for stage in stages if stage is not None}
    if len(pinned) > 1:
        raise SplitError(f"Layers '{name}' have to be in one stage, but are put on stages {sorted(pinned)}.")
    return LayerCosts(
        name=name,
        flops=sum(cost.flops for cost in costs),
        parameter_bytes=sum(cost.parameter_bytes + cost.training_bytes for cost in costs),
        activation_bytes=sum(cost.output_bytes for cost in costs),
        stage=next(iter(pinned), None),
    )
