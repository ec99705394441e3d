"""Patches Keras's model classes with the methods of IPU models."""

from __future__ import annotations

import functools
from typing import Any

import keras

from keras_ipu.extensions import IPUModelAttribute, extension_attributes
from keras_ipu.pipeline import graph
from keras_ipu.pipeline.graph import ModelKind, kind_of
from keras_ipu.pipeline.run_checks import check_before
from keras_ipu.pipeline.stage_methods import assign_from_scopes, assigned, invalidate
from keras_ipu.pipeline.stage_scopes import record_stage
from keras_ipu.saving import saving
from keras_ipu.scope.graphcore_names import READ_ONLY
from keras_ipu.scope.input_shapes import install_input_shapes
from keras_ipu.stock import graphs as keras_graphs
from keras_ipu.stock import hooks as keras_hooks
from keras_ipu.stock.ownership import is_ipu_model
from keras_ipu.training.common.recurrent_weights import patch_weight_reads
from keras_ipu.training.common.run_arguments import checked_arguments
from keras_ipu.training.tensorflow.summed_rows import install_row_sums


def install_extensions() -> None:
    """Patches Keras so that models of an `IPUStrategy`'s scope are IPU models. Calling it again changes nothing."""
    _add_attributes()
    keras_hooks.hook_creation(record_stage, _assign_functional)
    install_input_shapes()
    if keras.backend.backend() == "tensorflow":
        install_row_sums()
        patch_weight_reads()
    hook, sequential = keras_hooks.hook, keras.Sequential
    for doing, ours in {"fit": _before_fit, "evaluate": _before_evaluate, "predict": _before_predict}.items():
        hook(keras_hooks.Trainer, doing, is_ipu_model, ours)
    hook(sequential, "add", is_ipu_model, _add)
    hook(sequential, "pop", is_ipu_model, _pop)
    hook(sequential, "build", is_ipu_model, _build_sequential)
    hook(keras.Model, "build", _is_subclassed, _build)
    hook(keras.Model, "save", is_ipu_model, saving.save)
    for owner in (sequential, keras_graphs.Functional):
        hook(owner, "get_config", is_ipu_model, saving.get_config)
    for owner in (sequential, keras.Model):
        keras_hooks.hook_from_config(owner, saving.from_config)
    keras_hooks.hook_clones(saving.copy_options)


def _add_attributes() -> None:
    attributes = extension_attributes()
    attributes |= {name: IPUModelAttribute(name, get) for name, get in READ_ONLY.items()}
    for name, ours in {"save_assets": saving.save_assets, "load_assets": saving.load_assets}.items():
        attributes[name] = IPUModelAttribute(name, functools.partial(functools.partial, ours))
    for name, attribute in attributes.items():
        keras_hooks.add_attribute(keras.Model, name, attribute)


def _is_subclassed(model: Any) -> bool:
    return is_ipu_model(model) and kind_of(model) is ModelKind.SUBCLASSED


def _assign_functional(model: Any) -> None:
    if is_ipu_model(model):
        assign_from_scopes(model)


def _build(stock: Any, model: Any, input_shape: Any) -> Any:
    """Replaces `build`: builds a subclassed model's layers, and finds its pipeline stages if it has any."""
    if keras_graphs.in_call() or all(layer.built for layer in model.layers):
        return stock(model, input_shape)
    inputs = graph.symbolic_inputs(model, input_shape)
    if graph.build_layers(model, inputs):
        graph.trace(model, inputs)
        assigned(model)  # Reads the `PipelineStage` scopes, and raises if some layers are without.
    return stock(model, graph.shapes_of(inputs))


def _build_sequential(stock: Any, model: Any, input_shape: Any = None) -> Any:
    """Replaces `build` of a `Sequential`, which may be built again with a shape that fits its input's."""
    known = model.input_shape if model.built and keras_graphs.sequential_graph(model) is not None else None
    return stock(model, known if _fits(known, input_shape) else input_shape)


def _fits(known: Any, shape: Any) -> bool:
    if not isinstance(known, tuple) or not isinstance(shape, (tuple, list)) or len(known) != len(shape):
        return False
    return all(size is None or size == given for size, given in zip(known, shape, strict=True))


def _before_fit(stock: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
    args, kwargs = checked_arguments(stock, model, args, kwargs)
    check_before(model, "fit")
    return stock(model, *args, **kwargs)


def _before_evaluate(stock: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
    args, kwargs = checked_arguments(stock, model, args, kwargs)
    check_before(model, "evaluate")
    return stock(model, *args, **kwargs)


def _before_predict(stock: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
    args, kwargs = checked_arguments(stock, model, args, kwargs)
    check_before(model, "predict")
    return stock(model, *args, **kwargs)


def _add(stock: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
    invalidate(model, "Adding a layer to")
    return stock(model, *args, **kwargs)


def _pop(stock: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
    invalidate(model, "Removing a layer from")
    return stock(model, *args, **kwargs)
