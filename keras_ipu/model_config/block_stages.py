"""`BlockStages`: the stage of each layer call of a model whose repeated blocks lie on given IPUs."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Sequence
from typing import Any

from keras_ipu.pipeline.plan_builder import is_layer_call
from keras_ipu.pipeline.shared_variables import early_order, variables_of
from keras_ipu.pipeline.split_by_cost import one_stage_plan
from keras_ipu.pipeline.stage_plan import LayerCall


@dataclasses.dataclass(frozen=True)
class BlockStages:
    """Stages of a model's layer calls.

    Attributes:
        stages: the stage of each call, in the order in which the model has them.
        mapping: the IPU of each stage.
    """

    stages: list[int]
    mapping: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class ModelBlocks:
    """Layer calls of a model, and those with which its repeated blocks begin.

    Attributes:
        calls: in an order in which they can run; those that share variables follow each other where they can.
        order: for each of them its place in the model's own order.
        starts: the places among `calls` at which blocks begin. A block ends where the next one begins.
    """

    calls: tuple[LayerCall, ...]
    order: tuple[int, ...]
    starts: tuple[int, ...]

    @property
    def names(self) -> list[str]:
        """The names of the layers with which blocks begin."""
        return [str(self.calls[place].layer.name) for place in self.starts]

    def on_ipus(self, layers: Sequence[int]) -> BlockStages:
        """Returns the stages if each IPU has so many of the blocks.

        What comes before the blocks is on IPU 0, what comes after them on the last one; but a layer there that shares
        variables with one before is on that one's IPU, with all that follows it.

        Args:
            layers: blocks on each IPU, all together as many as there are.
        """
        at = [0] * self.starts[0]
        ends = [*self.starts[1:], self.starts[-1] + 1]
        owners = [ipu for ipu, count in enumerate(layers) for _ in range(count)]
        for ipu, start, end in zip(owners, self.starts, ends, strict=True):
            at += [ipu] * (end - start)
        at += [len(layers) - 1] * (len(self.calls) - len(at))
        at = self._with_shared(at)
        runs = [place for place, ipu in enumerate(at) if not place or at[place - 1] != ipu]
        stages = [sum(start <= place for start in runs) - 1 for place in range(len(at))]
        by_place = dict(zip(self.order, stages, strict=True))
        return BlockStages([by_place[place] for place in range(len(at))], tuple(at[place] for place in runs))

    def _with_shared(self, at: list[int]) -> list[int]:
        homes: dict[int, int] = {}
        for place, call in enumerate(self.calls):
            used = variables_of(call.layer)
            known = {homes[each] for each in used if each in homes}
            if known and known != {at[place]}:
                after_blocks = place > self.starts[-1]
                at[place : len(at) if after_blocks else place + 1] = [min(known)] * (
                    len(at) - place if after_blocks else 1
                )
            homes.update(dict.fromkeys(used, at[place]))
        return at


def model_blocks(model: Any, patterns: Sequence[str] | None = None) -> ModelBlocks:
    """Finds the repeated blocks of a model.

    Args:
        model: the model, built.
        patterns: names of the layers with which blocks begin, `*` standing for any text; by default the layers of the
            class that has most variables in several layers, with classes that have at least half as many.

    Raises:
        ValueError: if there are no such layers.
        RuntimeError: for a model that is not built.
    """
    plan = one_stage_plan(model)
    calls = [call for call in plan.calls if is_layer_call(call)]
    order = early_order(calls)
    ordered = tuple(calls[place] for place in order)
    kinds = () if patterns else _repeated_classes(ordered)
    starts, seen = [], set()
    for place, call in enumerate(ordered):
        named = any(fnmatch.fnmatchcase(str(call.layer.name), each) for each in patterns or ())
        if (named or type(call.layer) in kinds) and id(call.layer) not in seen:
            seen.add(id(call.layer))
            starts.append(place)
    if not starts:
        raise ValueError(
            f"Model {model.name} has no layers named {list(patterns)}."
            if patterns
            else f"Model {model.name} has no layers that repeat. Name those its blocks begin with: `layers=[...]`."
        )
    return ModelBlocks(ordered, tuple(order), tuple(starts))


def _repeated_classes(calls: Sequence[LayerCall]) -> tuple[type, ...]:
    layers = {id(call.layer): call.layer for call in calls if variables_of(call.layer)}
    sizes: dict[type, list[int]] = {}
    for layer in layers.values():
        sizes.setdefault(type(layer), []).append(layer.count_params())
    totals = {kind: sum(each) for kind, each in sizes.items() if len(each) > 1}
    return tuple(kind for kind, total in totals.items() if 2 * total >= max(totals.values()))
