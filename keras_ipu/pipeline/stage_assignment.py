"""Graphcore's pipeline stage assignment classes, one object for each layer call."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import keras

from ipu_tf._arguments.counts import optional_count
from keras_ipu.stock.graphs import calls_of

__all__ = [
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
    "ModelLayerPipelineStageAssignment",
    "NestedModelPipelineStageAssignment",
    "SequentialLayerPipelineStageAssignment",
    "SequentialNestedModelPipelineStageAssignment",
]


class _LayerCall:
    """One call of a layer, or of a model within a model."""

    _called: keras.layers.Layer
    _node_index: int

    @property
    def node_index(self) -> int:
        """Index of this call among all calls of the layer or inner model, from 0."""
        return self._node_index

    @property
    def inbound_layers(self) -> list[Any]:
        """The layers whose outputs the call takes, `InputLayer`s among them."""
        return _inbound(self._called, self._node_index)


class SequentialLayerPipelineStageAssignment:
    """The stage of a layer of a `Sequential`.

    Args:
        layer: the layer.
        pipeline_stage: its stage, from 0, or None if it has none yet. It may be changed.

    Raises:
        TypeError: for a stage that is no whole number; also when it is changed, as the following.
        ValueError: for a negative one.
    """

    is_nested_model = False

    def __init__(self, layer: keras.layers.Layer, pipeline_stage: int | None = None) -> None:
        self._layer = layer
        self.pipeline_stage = pipeline_stage

    @property
    def layer(self) -> keras.layers.Layer:
        """The layer."""
        return self._layer

    @property
    def pipeline_stage(self) -> int | None:
        """The stage, or None if there is none yet."""
        return self._stage

    @pipeline_stage.setter
    def pipeline_stage(self, stage: int | None) -> None:
        self._stage = optional_count("pipeline_stage", stage, least=0)

    def __str__(self) -> str:
        return f"Layer: {self.layer.name} is assigned to pipeline stage: {self.pipeline_stage}"


class ModelLayerPipelineStageAssignment(_LayerCall, SequentialLayerPipelineStageAssignment):
    """The stage of one call of a layer of a subclassed `Model`.

    Stages that share a layer have to lie on the same IPU.

    Args:
        layer: the layer.
        node_index: which of its calls, from 0.
        pipeline_stage: the call's stage, or None if it has none yet. It may be changed.
    """

    def __init__(self, layer: keras.layers.Layer, node_index: int, pipeline_stage: int | None = None) -> None:
        super().__init__(layer, pipeline_stage)
        self._called, self._node_index = layer, node_index

    def __str__(self) -> str:
        return (
            f"Layer: {self.layer.name} (node index {self.node_index}) is assigned to pipeline stage: "
            f"{self.pipeline_stage}"
        )


class FunctionalLayerPipelineStageAssignment(ModelLayerPipelineStageAssignment):
    """The stage of one call of a layer of a functional model.

    Args:
        layer: the layer.
        node_index: which of its calls, from 0.
        pipeline_stage: the call's stage, or None if it has none yet. It may be changed.
    """


class SequentialNestedModelPipelineStageAssignment:
    """The stages of the layers of a model within a `Sequential`.

    They are apart from the stages that the inner model has by itself, which are only the defaults.

    Args:
        nested_model: the inner model.
        pipeline_stage_assignments: those of its layers.
    """

    is_nested_model = True

    def __init__(self, nested_model: keras.Model, pipeline_stage_assignments: Sequence[Any]) -> None:
        self._nested_model = nested_model
        self._assignments = pipeline_stage_assignments

    @property
    def nested_model(self) -> keras.Model:
        """The inner model."""
        return self._nested_model

    @property
    def pipeline_stage_assignments(self) -> list[Any]:
        """The assignments of the inner model's layers."""
        return list(self._assignments)

    def __str__(self) -> str:
        return f"{self._title()} has the following pipeline stage assignments:" + "".join(
            f"\n  {each}" for each in self._assignments
        )

    def _title(self) -> str:
        return f"Model: {self.nested_model.name}"


class NestedModelPipelineStageAssignment(_LayerCall, SequentialNestedModelPipelineStageAssignment):
    """The stages of the layers of a model that is called within a subclassed `Model`.

    They are apart from the stages that the inner model has by itself, which are only the defaults.

    Args:
        nested_model: the inner model.
        node_index: which of its calls, from 0.
        pipeline_stage_assignments: those of its layers, for this call.
    """

    def __init__(self, nested_model: keras.Model, node_index: int, pipeline_stage_assignments: Sequence[Any]) -> None:
        super().__init__(nested_model, pipeline_stage_assignments)
        self._called, self._node_index = nested_model, node_index

    def _title(self) -> str:
        return f"{super()._title()} (node index {self.node_index})"


class FunctionalNestedModelPipelineStageAssignment(NestedModelPipelineStageAssignment):
    """The stages of the layers of a model that is called within a functional model.

    Args:
        nested_model: the inner model.
        node_index: which of its calls, from 0.
        pipeline_stage_assignments: those of its layers, for this call.
    """


def _inbound(layer: Any, node_index: int) -> list[Any]:
    return [node.operation for node in calls_of(layer)[node_index].parent_nodes]


def __getattr__(name: str) -> Any:
    if name == "PipelineStage":
        # Imported only now: `keras_ipu.pipeline.graph` asks whether it was imported, to know whether there are stages.
        from keras_ipu.pipeline.stage import PipelineStage

        return PipelineStage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def copies(assignments: Sequence[Any]) -> list[Any]:
    """Copies assignments, those within inner models too: of a model that has some, for a call of it in another."""
    copied = [copy.copy(each) for each in assignments]
    for each in copied:
        if each.is_nested_model:
            each._assignments = copies(each.pipeline_stage_assignments)
    return copied
