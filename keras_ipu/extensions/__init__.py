"""Extension classes of Keras models, as Graphcore's `keras.ipu.extensions` has them: which methods an IPU model has.

Models keep the class they have. A model made in the scope has the methods below and is an instance of the extension
class of its kind; any other model has neither. `keras_ipu.scope` installs the methods.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

from keras_ipu.generation.session import SessionMethods
from keras_ipu.options.methods import OptionMethods
from keras_ipu.options.options import ReplicatedMetricReductionMethod
from keras_ipu.pipeline import stage_assignment as pipeline_stage_assignment
from keras_ipu.pipeline.cost_split_methods import SplitMethods
from keras_ipu.pipeline.graph import ModelKind, kind_of
from keras_ipu.pipeline.stage_assignment import (
    FunctionalLayerPipelineStageAssignment,
    FunctionalNestedModelPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    NestedModelPipelineStageAssignment,
    SequentialLayerPipelineStageAssignment,
    SequentialNestedModelPipelineStageAssignment,
)
from keras_ipu.pipeline.stage_methods import StageMethods
from keras_ipu.saving.serving import ServingMethods
from keras_ipu.stock.ownership import is_ipu_model
from keras_ipu.training.common.report_methods import ReportMethods

__all__ = [
    "FunctionalExtension",
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
    "ModelExtension",
    "ModelLayerPipelineStageAssignment",
    "NestedModelPipelineStageAssignment",
    "ReplicatedMetricReductionMethod",
    "SequentialExtension",
    "SequentialLayerPipelineStageAssignment",
    "SequentialNestedModelPipelineStageAssignment",
    "functional_extensions",
    "model_extensions",
    "pipeline_stage_assignment",
    "sequential_extensions",
]

#: Graphcore's package has these as modules of their own.
functional_extensions = sequential_extensions = model_extensions = sys.modules[__name__]


def __getattr__(name: str) -> Any:
    if name == "PipelineStage":
        return pipeline_stage_assignment.PipelineStage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _ExtensionMeta(type):
    """Metaclass that makes models of a kind instances of the extension class."""

    kind: ModelKind | None

    def __instancecheck__(cls, instance: Any) -> bool:
        if not is_ipu_model(instance):
            return False
        return cls.kind is None or kind_of(instance) is cls.kind


class KerasExtensionBase(
    OptionMethods, StageMethods, SplitMethods, ServingMethods, ReportMethods, SessionMethods, metaclass=_ExtensionMeta
):
    """Every IPU model is an instance of this class."""

    kind: ClassVar[ModelKind | None] = None


class FunctionalExtension(KerasExtensionBase):
    """Functional models made in an `IPUStrategy`'s scope are instances of this class, `Sequential`s are not."""

    kind = ModelKind.FUNCTIONAL


class SequentialExtension(KerasExtensionBase):
    """`Sequential`s made in an `IPUStrategy`'s scope are instances of this class."""

    kind = ModelKind.SEQUENTIAL


class ModelExtension(KerasExtensionBase):
    """Subclassed models made in an `IPUStrategy`'s scope are instances of this class."""

    kind = ModelKind.SUBCLASSED


class IPUModelAttribute:
    """An attribute of a Keras class that only IPU models have.

    Args:
        name: of the attribute.
        get: gives its value for a model.
    """

    def __init__(self, name: str, get: Callable[[Any], Any]) -> None:
        self._name = name
        self._get = get

    def __get__(self, instance: Any, owner: type) -> Any:
        if is_ipu_model(instance):
            return self._get(instance)
        what = f"{owner.__name__!r} object has no attribute {self._name!r}"
        raise AttributeError(what if instance is None else f"{what}: only models of an `IPUStrategy`'s scope have it.")


def extension_attributes() -> dict[str, IPUModelAttribute]:
    """The attributes that IPU models have beyond Keras's, by name."""
    methods = {
        name: method
        for part in (OptionMethods, StageMethods, SplitMethods, ServingMethods, ReportMethods, SessionMethods)
        for name, method in vars(part).items()
        if not name.startswith("_")
    }
    return {name: IPUModelAttribute(name, _binder(method)) for name, method in methods.items()}


def _binder(method: Any) -> Callable[[Any], Any]:
    return lambda model: method.__get__(model)
