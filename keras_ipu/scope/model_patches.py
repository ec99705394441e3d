"""Patches Keras's model classes with the methods of IPU models."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ipu_tf.gradient_accumulation import GradientAccumulationReductionMethod
from keras_ipu.extensions import IPUModelAttribute, extension_attributes
from keras_ipu.generation.kerashub import patch_generate
from keras_ipu.options.model_state import options_of, state_of
from keras_ipu.pipeline import graph
from keras_ipu.pipeline.assigned_stages import assign_from_scopes, assigned, invalidate
from keras_ipu.pipeline.graph import ModelKind, kind_of
from keras_ipu.pipeline.stage_scopes import record_stage, stages_entered
from keras_ipu.saving import saving
from keras_ipu.scope.input_shapes import install_input_shapes
from keras_ipu.stock import graphs as keras_graphs
from keras_ipu.stock import patches as keras_patches
from keras_ipu.stock.ownership import is_ipu_model
from keras_ipu.training.common.replica_seeds import patch_seed_generators
from keras_ipu.training.common.running_streams import after_streams
from keras_ipu.training.jax import host_functions
from keras_ipu.training.tensorflow.eager_updates import install_eager_updates
from keras_ipu.training.tensorflow.image_layers import patch_crops, patch_image_layers
from keras_ipu.training.tensorflow.recurrent_weights import patch_weight_reads
from keras_ipu.training.tensorflow.summed_gradients import patch_gradient_sums


def install_extensions() -> None:
    """Patches Keras so that models of an `IPUStrategy`'s scope are IPU models. Calling it again changes nothing."""
    _add_attributes()
    keras_patches.patch_construction(_made, _assign_functional)
    install_input_shapes()
    patch_generate()
    patch_seed_generators()
    _patch_backend()
    patch_method, sequential = keras_patches.patch_method, keras.Sequential
    patch_method(sequential, "add", is_ipu_model, _add)
    patch_method(sequential, "pop", is_ipu_model, _pop)
    patch_method(sequential, "build", is_ipu_model, _build_sequential)
    patch_method(keras.Model, "build", _is_subclassed, _build)
    patch_method(keras.Model, "save", is_ipu_model, saving.save)
    for owner, name in ((keras.Model, "quantize"), (keras.Model, "load_weights"), (keras.Layer, "set_weights")):
        patch_method(owner, name, is_ipu_model, after_streams)
    for owner in (sequential, keras_graphs.Functional):
        patch_method(owner, "get_config", is_ipu_model, saving.get_config)
    for owner in (sequential, keras.Model):
        keras_patches.patch_from_config(owner, saving.from_config)
    keras_patches.patch_clone_model(saving.copy_options)


def _patch_backend() -> None:
    if keras.backend.backend() == "jax":
        host_functions.install()
        patch_crops()
    if keras.backend.backend() == "tensorflow":
        patch_gradient_sums()
        install_eager_updates()
        patch_weight_reads()
        patch_image_layers()


def _made(operation: Any) -> None:
    record_stage(operation)
    if keras.backend.backend() == "jax":
        host_functions.note_layer(operation)


def _add_attributes() -> None:
    attributes = extension_attributes()
    attributes |= {name: IPUModelAttribute(name, get) for name, get in READ_ONLY.items()}
    for name, ours in {"save_assets": saving.save_assets, "load_assets": saving.load_assets}.items():
        attributes[name] = IPUModelAttribute(name, functools.partial(functools.partial, ours))
    for name, attribute in attributes.items():
        keras_patches.add_attribute(keras.Model, name, attribute, __name__)


def _is_subclassed(model: Any) -> bool:
    return is_ipu_model(model) and kind_of(model) is ModelKind.SUBCLASSED


def _assign_functional(model: Any) -> None:
    if is_ipu_model(model):
        assign_from_scopes(model)


def _build(stock: Any, model: Any, input_shape: Any) -> Any:
    """Replaces `build`: builds a subclassed model's layers, and finds its pipeline stages if it has any.

    Where a step is traced, only the model's own `build` calls it, with layers that the following `call` builds.
    """
    traced = tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context()
    if traced or keras_graphs.in_call() or all(layer.built for layer in model.layers):
        return stock(model, input_shape)
    inputs, before = graph.symbolic_inputs(model, input_shape), stages_entered()
    try:
        staged = graph.build_layers(model, inputs)
    except Exception:  # as of a `call` of several arguments, or of indices: Keras builds it with its real ones
        if stages_entered() > before or graph.has_staged_layers(model):
            raise
        return stock(model, input_shape)
    if staged:
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


def _add(stock: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
    invalidate(model, "Adding a layer to")
    return stock(model, *args, **kwargs)


def _pop(stock: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
    invalidate(model, "Removing a layer from")
    return stock(model, *args, **kwargs)


def _mapping(model: Any) -> list[int] | None:
    mapping = options_of(model).pipelining_device_mapping
    return None if mapping is None else list(mapping)


READ_ONLY: dict[str, Callable[[Any], Any]] = {
    "_is_pipelined": lambda model: lambda: bool(assigned(model)),
    "_pipeline_stage_assignment": lambda model: list(assigned(model)),
    "_pipeline_stage_assignment_valid": lambda model: bool(assigned(model)) and state_of(model).assignment_valid,
    "_asynchronous_callbacks": lambda model: options_of(model).asynchronous_callbacks,
    "_replicated_metric_reduction_method": lambda model: options_of(model).log_reduction,
    "_gradient_accumulation_steps_per_replica": lambda model: options_of(model).gradient_accumulation_steps,
    "_gradient_accumulation_optimizer_kwargs": lambda model: dict(options_of(model).gradient_accumulation_kwargs),
    "_gradient_accumulation_reduction_method": lambda model: GradientAccumulationReductionMethod.parse(
        options_of(model).gradient_accumulation_reduction
    ),
    "_pipelining_gradient_accumulation_steps_per_replica": lambda model: (
        options_of(model).pipelining_gradient_accumulation_steps
    ),
    "_pipelining_device_mapping": _mapping,
    "_pipelining_accumulate_outfeed": lambda model: options_of(model).pipelining_accumulate_outfeed,
    "_pipelining_kwargs": lambda model: dict(options_of(model).pipelining_kwargs),
    "_infeed_kwargs": lambda model: dict(options_of(model).infeed_kwargs),
    "_outfeed_kwargs": lambda model: dict(options_of(model).outfeed_kwargs),
}
"""By name, what gives the value for a model."""
