"""Keras on the emulated IPU: models made in an `IPUStrategy`'s scope train, evaluate and predict on the device.

Nothing here has to be imported by a user: entering the scope does. Models made outside a scope stay stock Keras.
"""

import importlib
from typing import Any

from ipu_tf._strategy.hooks import add_graph_hook, add_scope_hook
from keras_ipu.options.options import ReplicatedMetricReductionMethod
from keras_ipu.pipeline.stage_assignment import (
    FunctionalLayerPipelineStageAssignment,
    FunctionalNestedModelPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    NestedModelPipelineStageAssignment,
    SequentialLayerPipelineStageAssignment,
    SequentialNestedModelPipelineStageAssignment,
)
from keras_ipu.scope.scope import keras_scope
from keras_ipu.stock.models import reset_layer_names

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

#: Modules that are reached as attributes of this package.
_HOMES = {
    "addons": "keras_ipu.addons",
    "debug": "keras_ipu.debug",
    "layers": "keras_ipu.layers",
    "losses": "keras_ipu.addons.losses",
    "optimizers": "keras_ipu.optimizers",
}
#: What Graphcore's package held up to SDK 2.5.
_OLD_NAMES = {"CTCLoss": "keras_ipu.addons.losses"} | dict.fromkeys(
    ("Model", "PipelineModel", "PipelineSequential", "Sequential"), "keras_ipu.legacy.deleted_models"
)
_OLD_NAMES |= dict.fromkeys(("FunctionalExtension", "SequentialExtension"), "keras_ipu.extensions")


def __getattr__(name: str) -> Any:
    if name == "PipelineStage":
        # Imported only now: `keras_ipu.pipeline.graph` asks whether it was imported, to know whether there are stages.
        from keras_ipu.pipeline.stage import PipelineStage

        return PipelineStage
    if name in _HOMES:
        return importlib.import_module(_HOMES[name])
    if name in _OLD_NAMES:
        return getattr(importlib.import_module(_OLD_NAMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


add_scope_hook(keras_scope)
add_graph_hook(reset_layer_names)
