"""Keras on the emulated IPU: models made in an `IPUStrategy`'s scope train, evaluate and predict on the device.

Nothing here has to be imported by a user: entering the scope does. Models made outside a scope stay stock Keras.
"""

import importlib
from typing import TYPE_CHECKING, Any

# Before modules of ours: under the launcher the import of Keras ends with one of `keras_ipu.legacy`, which needs them.
import keras as _keras  # noqa: F401

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

if TYPE_CHECKING:
    from keras_ipu import addons as addons
    from keras_ipu import callbacks as callbacks
    from keras_ipu import debug as debug
    from keras_ipu import layers as layers
    from keras_ipu import optimizers as optimizers
    from keras_ipu.addons import losses as losses
    from keras_ipu.debug import check_parity
    from keras_ipu.model_config.model_config import IPUModelConfig
    from keras_ipu.pipeline.stage import PipelineStage

__ipu__built__ = "1"

__all__ = [
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
    "IPUModelConfig",
    "ModelLayerPipelineStageAssignment",
    "NestedModelPipelineStageAssignment",
    "PipelineStage",
    "ReplicatedMetricReductionMethod",
    "SequentialLayerPipelineStageAssignment",
    "SequentialNestedModelPipelineStageAssignment",
    "check_parity",
    "keras_scope",
]

#: Modules that are reached as attributes of this package.
_HOMES = {
    "addons": "keras_ipu.addons",
    "callbacks": "keras_ipu.callbacks",
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


if not TYPE_CHECKING:  # else every misspelt name would be of type Any

    def __getattr__(name: str) -> Any:
        if name == "PipelineStage":
            # Imported only now: `keras_ipu.pipeline.graph` asks whether it was imported, to know if there are stages.
            from keras_ipu.pipeline.stage import PipelineStage

            return PipelineStage
        if name == "check_parity":
            return importlib.import_module("keras_ipu.debug").check_parity
        if name == "IPUModelConfig":
            return importlib.import_module("keras_ipu.model_config.model_config").IPUModelConfig
        if name in _HOMES:
            return importlib.import_module(_HOMES[name])
        if name in _OLD_NAMES:
            return getattr(importlib.import_module(_OLD_NAMES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists the public names, those that are not imported yet included."""
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__, *_HOMES, *_OLD_NAMES})


add_scope_hook(keras_scope)
add_graph_hook(reset_layer_names)
