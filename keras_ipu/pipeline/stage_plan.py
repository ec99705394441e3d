"""`StagePlan`: the layer calls of each pipeline stage, and the tensors passed between stages.

plan = stage_plan(model)
values = plan.start(x)                    what stage 0 takes
for stage in range(plan.stages):
    values = run_stage(plan, stage, values, training)
y = plan.finish(values)                   equals model(x, training=training)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_ipu.pipeline.graph import UNSET, ModelKind, graph_of, kind_of
from keras_ipu.stock import graphs as keras_graphs


@dataclasses.dataclass(frozen=True)
class LayerCall:
    """One call of a layer in one stage.

    Values are named by numbers, each given out by one call or being an input of the model.

    Attributes:
        layer: the layer, or another Keras operation.
        arguments: of the call, with symbolic tensors in the places of values.
        stage: its stage.
        inputs: the number of each symbolic tensor among the arguments, by its `id`.
        outputs: the numbers of the values it gives.
        forced_training: the `training` argument it has whatever the model is given, or None.
        default_training: the one it has if the model is given none, or None.
    """

    layer: Any
    arguments: Any
    stage: int
    inputs: dict[int, int]
    outputs: tuple[int, ...]
    forced_training: bool | None
    default_training: bool | None

    def training(self, given: bool | None) -> bool | None:
        """Returns the call's `training` argument if the model's is `given`."""
        if self.forced_training is not None:
            return self.forced_training
        return self.default_training if given is None else given


@dataclasses.dataclass(frozen=True)
class StagePlan:
    """Layer calls of each stage of a pipelined model, and the values passed between them.

    Attributes:
        model: the model.
        stages: how many.
        calls: every call, stage by stage, in the order in which they run.
        carried: for each stage the numbers of the values it takes, and last those of the model's outputs.
    """

    model: Any
    stages: int
    calls: tuple[LayerCall, ...]
    carried: tuple[tuple[int, ...], ...]

    def start(self, x: Any, mask: Any = None) -> list[Any]:
        """The flat tensors that stage 0 takes for the model's inputs `x`, with the masks that its call is given."""
        tensors = entry_tensors(self.model, x)
        for tensor, own in zip(tensors, keras.tree.flatten(mask), strict=False):  # Keras takes fewer masks than inputs
            if own is not None:
                keras_graphs.set_mask(tensor, own)
        return tensors

    def finish(self, values: Sequence[Any]) -> Any:
        """Packs the flat outputs of the last stage to the model's outputs."""
        _, structure = keras_graphs.graph_structures(graph_of(self.model))
        outputs = keras.tree.pack_sequence_as(structure, list(values))
        if isinstance(outputs, (list, tuple)) and len(outputs) == 1 and kind_of(self.model) is not ModelKind.SUBCLASSED:
            return outputs[0]
        return outputs


def entry_tensors(model: Any, x: Any) -> list[Any]:
    """The flat tensors that a model feeds its graph when it is called with `x`.

    Raises:
        ValueError: if `x` does not have the structure of the model's inputs.
    """
    kind, graph = kind_of(model), graph_of(model)
    if kind is not ModelKind.FUNCTIONAL:
        x = keras.tree.map_structure(lambda each: _converted(model, each), x)
    if kind is not ModelKind.SUBCLASSED:
        return keras_graphs.standardized_inputs(graph, x)
    structure, _ = keras_graphs.graph_structures(graph)
    keras.tree.assert_same_structure(keras.tree.lists_to_tuples(x), keras.tree.lists_to_tuples(structure))
    return list(keras.tree.flatten(x))


def in_order_of_inputs(model: Any, argument: Any) -> Any:
    """Returns a dict of tensors as the list that a model takes whose inputs are one: Keras goes by their names."""
    structure = keras_graphs.graph_structures(graph_of(model))[0]
    if not isinstance(argument, dict) or isinstance(structure, dict) or kind_of(model) is ModelKind.SUBCLASSED:
        return argument
    return [argument[each.name] for each in keras.tree.flatten(structure)]


def _converted(model: Any, x: Any) -> Any:
    return model.dtype_policy.convert_input(tf.convert_to_tensor(x), model.autocast, model.input_dtype)


def run_stage(plan: StagePlan, stage: int, values: Sequence[Any], training: bool | None = None) -> list[Any]:
    """Runs one stage.

    The stages of a plan have to run within one trace, with the tensors passed on unchanged: Keras keeps masks at the
    tensors, and losses of the layers at the layers until stage 0 runs again.

    Args:
        plan: the pipeline.
        stage: the stage's number.
        values: the tensors that `plan.start` or the stage before gave.
        training: as for the model's call.

    Returns:
        The tensors for the next stage, or of the last one the model's flat outputs.

    Raises:
        ValueError: for another number of tensors than the stage takes.
    """
    known = dict(zip(plan.carried[stage], values, strict=True))
    with keras_graphs.model_call(plan.model, training, first=stage == 0):
        for call in plan.calls:
            if call.stage == stage:
                known.update(zip(call.outputs, run_call(call, known, training), strict=True))
    return [known[number] for number in plan.carried[stage + 1]]


def run_call(call: LayerCall, known: dict[int, Any], given: bool | None) -> list[Any]:
    """Runs one layer call.

    Args:
        call: the call.
        known: values by number, those that it takes among them.
        given: the `training` argument of the model.

    Returns:
        The tensors it gives, flat.
    """
    args, kwargs = call.arguments.fill_in({tensor: known[number] for tensor, number in call.inputs.items()})
    if kwargs.get("training") is UNSET:
        del kwargs["training"]
    training = call.training(given)
    if training is not None and keras_graphs.takes_training(call.layer):
        kwargs["training"] = training
    return list(keras.tree.flatten(call.layer(*args, **kwargs)))


def carried_values(
    calls: Iterable[LayerCall], stages: int, inputs: Sequence[int], outputs: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """Returns the values that enter each stage, for itself and for later ones, and last the outputs."""
    calls = list(calls)
    rows: list[tuple[int, ...]] = []
    for stage in range(1, stages):
        made = list(dict.fromkeys([*inputs, *(n for call in calls if call.stage < stage for n in call.outputs)]))
        wanted = {n for call in calls if call.stage >= stage for n in call.inputs.values()} | set(outputs)
        rows.append(tuple(number for number in made if number in wanted))
    return (tuple(inputs), *rows, tuple(outputs))
