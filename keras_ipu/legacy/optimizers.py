"""Keras 2's arguments, attributes and methods of optimizers, for Keras 3's: `lr`, `decay`, `gradient_transformers`."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ipu_tf._patches.installation import replace_in
from ipu_tf._state.context import context_value
from keras_ipu.legacy.optimizer_slots import host_variable
from keras_ipu.legacy.optimizer_subclasses import as_number, overrides, owner_of, set_rate
from keras_ipu.stock import patches as keras_patches

#: Whether an optimizer's gradients are summed over replicas; whether `_transform_unaggregated_gradients` has seen them.
_aggregates: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_keras_2_aggregates", default=True)
_transformed: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_keras_2_transformed", default=False)


class _Variables(list[Any]):
    """An optimizer's variables: a list in Keras 3, a method in Keras 2."""

    def __call__(self) -> list[Any]:
        return list(self)


def install_optimizers() -> None:
    """Patches Keras's optimizers to take Keras 2's arguments and to call its methods. Idempotent."""
    base = owner_of("update_step")
    keras_patches.patch_method(base, "__init__", _always, _init)
    for name, ours in (
        ("get_config", _get_config),
        ("set_weights", _set_weights),
        ("apply_gradients", _apply_gradients),
        ("_clip_gradients", _clip_gradients),
        ("_backend_update_step", _backend_update_step),
    ):
        keras_patches.patch_method(owner_of(name), name, _always, ours)
    if keras.config.backend() == "tensorflow":
        for owner in (base, keras.optimizers.LossScaleOptimizer):
            replace_in(owner, "variables", _callable_variables)
        name = "_all_reduce_sum_gradients"
        keras_patches.patch_method(owner_of(name), name, _always, _all_reduce)
    for name, attribute in _ATTRIBUTES.items():
        keras_patches.add_attribute(base, name, attribute, __name__)


def _always(_: Any) -> bool:
    return True


def _init(stock: Callable[..., Any], optimizer: Any, learning_rate: Any = None, *args: Any, **kwargs: Any) -> None:
    """Keras 2's base class takes a name first; its learning rate comes by `lr`, or later by `_set_hyper`."""
    if isinstance(learning_rate, str):
        learning_rate, kwargs["name"] = None, learning_rate
    rate = kwargs.pop("lr", learning_rate)
    decay = kwargs.pop("decay", None) or 0.0
    transformers = kwargs.pop("gradient_transformers", None) or ()
    aggregator = kwargs.pop("gradient_aggregator", None)
    number = as_number(rate)
    stock(optimizer, float("nan") if number is None else number, *args, **kwargs)
    if rate is not None and number is None:
        set_rate(optimizer, rate)
    kept = {"_initial_decay": float(decay), "gradient_transformers": list(transformers)}
    for name, value in {**kept, "gradient_aggregator": aggregator}.items():
        object.__setattr__(optimizer, name, value)  # Keras would track it


def _get_config(stock: Callable[..., Any], optimizer: Any) -> dict[str, Any]:
    config: dict[str, Any] = stock(optimizer)
    return {**config, "decay": optimizer._initial_decay} if optimizer._initial_decay else config


def _apply_gradients(
    stock: Callable[..., Any],
    optimizer: Any,
    grads_and_vars: Any,
    name: str | None = None,
    experimental_aggregate_gradients: bool = True,
    skip_gradients_aggregation: bool = False,
    **kwargs: Any,
) -> Any:
    with context_value(_aggregates, bool(experimental_aggregate_gradients) and not skip_gradients_aggregation):
        return stock(optimizer, list(grads_and_vars), **kwargs)


def _clip_gradients(stock: Callable[..., Any], optimizer: Any, grads: Any) -> Any:
    """Clips gradients, which Keras 2 does in `_transform_gradients`, where a subclass may do other things before."""
    return grads if overrides(optimizer, "_transform_gradients") else stock(optimizer, grads)


def _transform_gradients(optimizer: Any, grads_and_vars: Any) -> list[tuple[Any, Any]]:
    pairs = list(grads_and_vars)
    if overrides(optimizer, "_transform_gradients"):
        clip = type(optimizer)._clip_gradients.__wrapped__
        pairs = list(zip(clip(optimizer, [each for each, _ in pairs]), [each for _, each in pairs], strict=True))
    for transform in optimizer.gradient_transformers:
        pairs = list(transform(pairs))
    return pairs


def _aggregate_gradients(optimizer: Any, grads_and_vars: Any) -> list[Any]:
    """Sums gradients over TensorFlow's replicas, of which an IPUStrategy has one; returns them without variables."""
    reduce = getattr(type(optimizer), "_all_reduce_sum_gradients", None)
    return [each for each, _ in (grads_and_vars if reduce is None else reduce.__wrapped__(optimizer, grads_and_vars))]


def _backend_update_step(
    stock: Callable[..., Any], optimizer: Any, grads: Any, trainable_variables: Any, learning_rate: Any
) -> Any:
    pairs = list(zip(grads, map(host_variable, trainable_variables), strict=True))
    if _aggregates.get():
        pairs = list(optimizer._transform_unaggregated_gradients(pairs))
        if overrides(optimizer, "_aggregate_gradients"):
            pairs = list(zip(optimizer._aggregate_gradients(pairs), [each for _, each in pairs], strict=True))
    changed = list(optimizer._transform_gradients(pairs))
    if optimizer._initial_decay:
        rate = keras.ops.cast(learning_rate, "float32")
        learning_rate = rate / (1.0 + optimizer._initial_decay * keras.ops.cast(optimizer.iterations, "float32"))
    with context_value(_transformed, True):
        return stock(optimizer, [each for each, _ in changed], [each for _, each in changed], learning_rate)


def _all_reduce(stock: Callable[..., Any], optimizer: Any, grads_and_vars: Any) -> Any:
    later = overrides(optimizer, "_transform_unaggregated_gradients") and not _transformed.get()
    as_is = later or not _aggregates.get() or overrides(optimizer, "_aggregate_gradients")
    return grads_and_vars if as_is else stock(optimizer, grads_and_vars)


def _callable_variables(stock: Any) -> Any:
    return property(lambda optimizer: _Variables(stock.fget(optimizer)), doc=stock.__doc__)


def _weights(optimizer: Any) -> list[Any]:
    """The variables that Keras 2 counts among an optimizer's weights: all but the learning rate's."""
    return [each for each in optimizer.variables if each is not optimizer._learning_rate]


def _set_weights(stock: Callable[..., Any], optimizer: Any, weights: Any) -> None:
    """Sets what `get_weights` gave, or, as Keras 3 does, a value of every variable."""
    given = list(weights)
    if len(given) != len(optimizer.weights):
        stock(optimizer, given)
        return
    for variable, value in zip(optimizer.weights, given, strict=True):
        variable.assign(value)


def _set_learning_rate(optimizer: Any, rate: Any) -> None:
    optimizer.learning_rate = rate


def _minimize(
    optimizer: Any, loss: Any, var_list: Any, grad_loss: Any = None, name: Any = None, tape: Any = None
) -> Any:
    pairs = optimizer._compute_gradients(loss, var_list, grad_loss, tape)
    return optimizer.apply_gradients(pairs, name=name)


def _compute_gradients(optimizer: Any, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None) -> Any:
    if tape is None and not callable(loss):
        raise ValueError(f"`tape` is required when a `Tensor` loss is passed. Received: loss={loss}, tape={tape}.")
    tape = tape or tf.GradientTape()
    if callable(loss):
        with tape:
            loss = loss()
    variables = [host_variable(each) for each in tf.nest.flatten(var_list() if callable(var_list) else var_list)]
    return list(zip(tape.gradient(loss, variables, grad_loss), variables, strict=True))


def _get_gradients(optimizer: Any, loss: Any, params: Any) -> list[Any]:
    found = tf.gradients(loss, [host_variable(each) for each in tf.nest.flatten(params)])
    for gradient, variable in zip(found, tf.nest.flatten(params), strict=True):
        if gradient is None:
            raise ValueError(f"Variable {variable} has `None` for gradient: the loss must depend on it.")
    return list(found)


def _get_updates(optimizer: Any, loss: Any, params: Any) -> list[Any]:
    gradients = optimizer.get_gradients(loss, params)
    return [optimizer.apply_gradients(list(zip(gradients, tf.nest.flatten(params), strict=True)))]


_ATTRIBUTES = {
    "lr": property(lambda optimizer: optimizer.learning_rate, _set_learning_rate),
    "_name": property(lambda optimizer: optimizer.name),
    "weights": property(_weights),
    "get_weights": lambda optimizer: [np.asarray(keras.ops.convert_to_numpy(each)) for each in optimizer.weights],
    "_transform_unaggregated_gradients": lambda optimizer, grads_and_vars: grads_and_vars,
    "_transform_gradients": _transform_gradients,
    "_aggregate_gradients": _aggregate_gradients,
    "minimize": _minimize,
    "_compute_gradients": _compute_gradients,
    "get_gradients": _get_gradients,
    "get_updates": _get_updates,
}
