"""Keras on the emulated IPU: models made in an `IPUStrategy`'s scope train, evaluate and predict on the device.

Nothing here has to be imported by a user: entering the scope does. Models made outside a scope stay stock Keras.
"""

from typing import Any

from ipu_tf.strategy_hooks import add_graph_hook, add_scope_hook
from keras_ipu.keras_private import fresh_names
from keras_ipu.options import ReplicatedMetricReductionMethod
from keras_ipu.scope import keras_scope
from keras_ipu.stage_assignment import (
    FunctionalLayerPipelineStageAssignment,
    FunctionalNestedModelPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    NestedModelPipelineStageAssignment,
    SequentialLayerPipelineStageAssignment,
    SequentialNestedModelPipelineStageAssignment,
)

__ipu__built__ = "1"

__all__ = [
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
    "ModelLayerPipelineStageAssignment",
    "NestedModelPipelineStageAssignment",
    "PipelineStage",
    "ReplicatedMetricReductionMethod",
    "SequentialLayerPipelineStageAssignment",
    "SequentialNestedModelPipelineStageAssignment",
    "keras_scope",
]


def __getattr__(name: str) -> Any:
    if name == "PipelineStage":
        # Imported only now: whether it was tells whether a program has pipeline stages at all (`keras_ipu.graph`).
        from keras_ipu.stage import PipelineStage

        return PipelineStage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


add_scope_hook(keras_scope)
add_graph_hook(fresh_names)
