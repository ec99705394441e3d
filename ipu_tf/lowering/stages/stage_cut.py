"""`StageCut`: the stage of every op and value of a pipelined step, as frozen data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ipu_tf.lowering.stablehlo.stage_markers import StageMarker
from ipu_tf.lowering.stages.flat_step import FlatOp


@dataclasses.dataclass(frozen=True)
class StepSignature:
    """Roles of a step's values: carried values, infeed elements, outfeed elements.

    Attributes:
        carried: from an argument's value to the position of the result that it becomes.
        elements: the values that an infeed's element gives, by the infeed's name.
        outputs: positions of the results that make an outfeed's element, by its name.
    """

    carried: Mapping[int, int]
    elements: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    outputs: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class StageCut:
    """Assignment of a step's ops and values to stages.

    Attributes:
        mark: the pipeline.
        live: the nodes that anything depends on, in order.
        level: of each node that has one, by the node's place in `live`; the others are computed wherever wanted.
        made_at: the level at which each value of a micro-batch is made.
        sent: operands (place in `live`, value) that are made elsewhere though they have no level, and the level there.
        homes: the stage of each variable or state that has one.
        states: values that go from micro-batch to micro-batch, and what they become.
        weights: variables that only the update changes, and what they become.
        draws: the place among the random draws of a micro-batch of each node that makes one, by its place in `live`.
        total_draws: how many draws a micro-batch makes.
    """

    mark: StageMarker
    live: tuple[FlatOp, ...]
    level: Mapping[int, int]
    made_at: Mapping[int, int]
    sent: Mapping[tuple[int, int], int]
    homes: Mapping[int, int]
    states: Mapping[int, int]
    weights: Mapping[int, int]
    draws: Mapping[int, int]
    total_draws: int

    def stage_of(self, level: int) -> int:
        """Returns the stage of a level."""
        return stage_of(self.mark, level)


def stage_of(mark: StageMarker, level: int) -> int:
    """Returns the stage whose forward or backward pass is at a level."""
    return level if level < mark.stages else 2 * mark.stages - 1 - level
