"""Patches Keras 3 to behave as Keras 2 for programs run by the launcher.

No result changes: the patches concern names, messages and signatures.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ipu_tf._patches.installation import replace_in
from keras_ipu.legacy.shared_optimizers import optimizer_for
from keras_ipu.stock import graphs as keras_graphs
from keras_ipu.stock import models as keras_models
from keras_ipu.stock import patches as keras_patches
from keras_ipu.stock.ownership import on_device


class NotCompiled(RuntimeError, ValueError):
    """Error for running a model that is not compiled: a RuntimeError as in Keras 2, a ValueError as in Keras 3."""


class NotALayer(TypeError, ValueError):
    """Error for adding a non-layer to a `Sequential`: a TypeError as in Keras 2, a ValueError as in Keras 3."""


def install_keras_2() -> None:
    """Patches Keras 3 to behave as Keras 2. Calling it again changes nothing."""
    keras_patches.patch_trainer_method("_assert_compile_called", _assert_compile_called)
    keras_patches.patch_trainer_method("compile", _compile)
    keras_patches.patch_method(keras.callbacks.History, "on_epoch_end", _always, _on_epoch_end)
    keras_patches.patch_method(keras.Sequential, "add", _always, _add)
    keras_patches.patch_method(keras.layers.Layer, "symbolic_call", _always, _symbolic_call)
    for owner, name, get in _ATTRIBUTES:
        keras_patches.add_attribute(owner, name, property(get), __name__)
    keras_patches.after_import_of_keras("backend", _add_to_backend)


def _add_to_backend(backend: Any) -> None:
    replace_in(backend, "learning_phase", lambda absent: keras_models.is_training_call, missing=None)
    replace_in(backend, "set_value", lambda absent: _set_value, missing=None)
    replace_in(backend, "batch_set_value", lambda absent: _batch_set_value, missing=None)


def _set_value(x: Any, value: Any) -> None:
    """Assigns a value to a variable of Keras or TensorFlow; Keras 3 keeps a function that takes TensorFlow's alone."""
    x.assign(value)


def _batch_set_value(tuples: Any) -> None:
    for variable, value in tuples:
        variable.assign(value)


def _always(_: Any) -> bool:
    return True


def _assert_compile_called(stock: Callable[..., Any], model: Any, *args: Any) -> None:
    try:
        stock(model, *args)
    except ValueError as error:
        raise NotCompiled("You must compile your model before training/testing. Use `model.compile(...)`.") from error


def _compile(stock: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> None:
    given = dict(inspect.signature(stock).bind(model, *args, **kwargs).arguments)
    given.pop("self")
    if "optimizer" in given:
        given["optimizer"] = _own_optimizer(model, given["optimizer"])
    outputs = len(getattr(model, "outputs", None) or ())
    for kind in ("metrics", "weighted_metrics"):
        if callable(given.get(kind)) or isinstance(given.get(kind), str):
            given[kind] = [given[kind]]
        if outputs > 1 and _is_flat(given.get(kind)):
            given[kind] = [_like(given[kind]) for _ in range(outputs)]  # each output has them all
    stock(model, **given)


def _is_flat(metrics: Any) -> bool:
    nested = (list, tuple, dict)
    return isinstance(metrics, (list, tuple)) and bool(metrics) and not any(isinstance(m, nested) for m in metrics)


def _like(metrics: Any) -> list[Any]:
    """Returns metrics for one output, as Keras 2 does: an object counts for one alone."""
    kind = keras.metrics.Metric
    return [type(m).from_config(m.get_config()) if isinstance(m, kind) else m for m in metrics if m is not None]


def _own_optimizer(model: Any, optimizer: Any) -> Any:
    """Returns an optimizer of Keras 3, the model's own; see `optimizer_for`."""
    if isinstance(optimizer, tf.compat.v1.train.GradientDescentOptimizer):
        return _gradient_descent(optimizer, keras_models.strategy_of(model))
    return optimizer_for(model, optimizer) if isinstance(optimizer, keras.optimizers.Optimizer) else optimizer


def _gradient_descent(optimizer: Any, strategy: Any) -> keras.optimizers.Optimizer:
    """Converts TensorFlow 1's `GradientDescentOptimizer` to Keras's SGD, reading the learning rate off an update."""
    probe = tf.Variable(0.0)
    with strategy.replica_context() if on_device(strategy) else contextlib.nullcontext():
        optimizer.apply_gradients([(tf.constant(1.0), probe)])
    return keras.optimizers.SGD(-float(probe.numpy()))


def _on_epoch_end(stock: Callable[..., Any], history: Any, epoch: int, logs: Any = None) -> None:
    """Sorts the logs: the loss first, then metrics, then those of validation."""
    stock(history, epoch, dict(sorted((logs or {}).items(), key=lambda item: _place(item[0]))))


def _place(name: str) -> tuple[bool, bool, bool]:
    own = name.removeprefix("val_")
    return own != name, own != "loss", not own.endswith("_loss")


def _add(stock: Callable[..., Any], model: Any, layer: Any, **kwargs: Any) -> None:
    try:
        stock(model, layer, **kwargs)
    except ValueError as error:
        if not str(error).startswith("Only instances of"):
            raise
        raise NotALayer(f"The added layer must be an instance of class Layer. Received: layer={layer}.") from error


def _symbolic_call(stock: Callable[..., Any], layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Names a layer's symbolic outputs after the layer."""
    outputs = stock(layer, *args, **kwargs)
    for tensor in keras.tree.flatten(outputs):
        name_for(layer, tensor, "/output")
    return outputs


def name_for(layer: Any, tensor: Any, suffix: str = "") -> None:
    """Names a symbolic tensor after its layer unless it has a name."""
    if isinstance(tensor, keras.KerasTensor) and tensor.name.startswith("keras_tensor"):
        tensor.name = layer.name + suffix


def _layers_of(tensors: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    return lambda model: [keras_graphs.made_by(tensor) for tensor in tensors(model)]


def _output_at(layer: Any, call: int) -> Any:
    return _one(keras_graphs.calls_of(layer)[call].outputs)


def _input_at(layer: Any, call: int) -> Any:
    return _one(keras_graphs.calls_of(layer)[call].input_tensors)


def _one(tensors: Any) -> Any:
    return tensors[0] if len(tensors) == 1 else list(tensors)


def _shape(tensor: Any) -> tf.TensorShape:
    return tf.TensorShape(tensor.shape)


def _method(function: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda owner: functools.partial(function, owner)


_ATTRIBUTES: list[tuple[type, str, Callable[[Any], Any]]] = [
    (keras_graphs.Functional, "_input_layers", _layers_of(lambda model: model.inputs)),
    (keras_graphs.Functional, "_output_layers", _layers_of(lambda model: model.outputs)),
    (keras.layers.Layer, "get_output_at", _method(_output_at)),
    (keras.layers.Layer, "get_input_at", _method(_input_at)),
    (keras.KerasTensor, "get_shape", _method(_shape)),
]
"""Classes of Keras, what Keras 2 had there, and what gives it."""
