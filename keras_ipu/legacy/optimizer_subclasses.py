"""Keras 2's methods of optimizers' subclasses on Keras 3: `_create_slots`, `_prepare_local`, `_resource_apply_dense`.

Keras 2                                             Keras 3
_create_slots: add_slot(variable, name)             build: add_variable_from_reference
_prepare_local: coefficients of a device and dtype
_resource_apply_dense, _resource_apply_sparse       update_step
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_ipu.legacy.optimizer_slots import SLOTS, host_variable
from keras_ipu.stock import patches as keras_patches

_APPLY = ("_resource_apply_dense", "_resource_apply_sparse")


def install_subclasses() -> None:
    """Patches Keras's base class of optimizers to call Keras 2's methods of its subclasses. Idempotent."""
    base = owner_of("update_step")
    keras_patches.patch_method(base, "build", lambda _: True, _build)
    init = classmethod(functools.partial(_define_update_step, base))
    for name, attribute in {"__init_subclass__": init, **_METHODS}.items():
        keras_patches.add_attribute(base, name, attribute, __name__)


def owner_of(name: str) -> Any:
    """The class of Keras that defines an optimizer's method."""
    return _definer(keras.optimizers.Optimizer, name)


def overrides(optimizer: Any, name: str) -> bool:
    """Returns whether a class of a program has a method of Keras 2's base class of optimizers."""
    return not _definer(type(optimizer), name).__module__.startswith("keras.src.")


def as_number(rate: Any) -> float | None:
    """A learning rate that is a number, NumPy's or an eager tensor as well; None for another, or none."""
    if rate is None or callable(rate) or isinstance(rate, (tf.Variable, keras.Variable)):
        return None
    return None if tf.is_tensor(rate) and not hasattr(rate, "numpy") else float(np.asarray(rate))


def set_rate(optimizer: Any, rate: Any) -> None:
    """Sets a learning rate: a number, NumPy's too, a tensor, a variable, a schedule or a function."""
    number = as_number(rate)
    if number is not None or callable(rate):
        optimizer.learning_rate = rate if number is None else number
    else:
        optimizer.learning_rate = lambda: rate  # takes off the variable of the rate before
        optimizer._learning_rate = rate


def _build(stock: Callable[..., Any], optimizer: Any, variables: Any) -> None:
    """Builds an optimizer, and has a subclass's `_create_slots` make its slots."""
    stock(optimizer, variables)
    if overrides(optimizer, "_create_slots"):
        object.__setattr__(optimizer, "_slots", {})  # Keras would track it
        optimizer._create_slots([host_variable(each) for each in variables])


def _define_update_step(base: Any, kind: Any, **kwargs: Any) -> None:
    """Gives a new class with `_resource_apply_dense`, or `..._sparse`, an `update_step` that calls them."""
    super(base, kind).__init_subclass__(**kwargs)
    order = kind.__mro__
    own = min(order.index(_definer(kind, name)) for name in _APPLY)
    if own < order.index(_definer(kind, "update_step")):
        kind.update_step = _update_step


def _definer(kind: Any, name: str) -> Any:
    return next(each for each in kind.__mro__ if name in vars(each))


def _update_step(optimizer: Any, gradient: Any, variable: Any, learning_rate: Any) -> None:
    if keras.config.backend() != "tensorflow":
        raise NotImplementedError(
            "`_resource_apply_dense` is TensorFlow's: set KERAS_BACKEND=tensorflow, or override `update_step`. "
            f"Received: {type(optimizer).__name__} with Keras on {keras.config.backend()}."
        )
    key = (variable.device, variable.dtype.base_dtype)
    state: dict[Any, dict[str, Any]] = {key: {}}
    optimizer._prepare_local(*key, state)
    if not isinstance(gradient, tf.IndexedSlices):
        _call(optimizer._resource_apply_dense, state, gradient, variable)
        return
    rows, places = tf.unique(gradient.indices)
    sums = tf.math.unsorted_segment_sum(gradient.values, places, tf.shape(rows)[0])
    _call(optimizer._resource_apply_sparse, state, sums, variable, rows)


def _call(method: Callable[..., Any], state: Any, *args: Any) -> None:
    parameters = inspect.signature(method).parameters.values()
    takes = any(each.name == "apply_state" or each.kind is each.VAR_KEYWORD for each in parameters)
    method(*args, **({"apply_state": state} if takes else {}))


def _apply_dense(optimizer: Any, grad: Any, var: Any, apply_state: Any = None) -> None:
    """Keras 3's own update, of the class that a subclass extends."""
    steps = [vars(kind)["update_step"] for kind in type(optimizer).__mro__ if "update_step" in vars(kind)]
    own = next(step for step in steps if step is not _update_step)
    own(optimizer, grad, var, _decayed_lr(optimizer, var.dtype))


def _apply_sparse(optimizer: Any, grad: Any, var: Any, indices: Any, apply_state: Any = None) -> None:
    _apply_dense(optimizer, tf.IndexedSlices(grad, indices, tf.shape(var)), var)


def _prepare_local(optimizer: Any, var_device: Any, var_dtype: Any, apply_state: Any) -> None:
    apply_state[(var_device, var_dtype)]["lr_t"] = _decayed_lr(optimizer, var_dtype)


def _fallback_apply_state(optimizer: Any, var_device: Any, var_dtype: Any) -> dict[str, Any]:
    state: dict[Any, dict[str, Any]] = {(var_device, var_dtype): {}}
    optimizer._prepare_local(var_device, var_dtype, state)
    return state[(var_device, var_dtype)]


def _decayed_lr(optimizer: Any, var_dtype: Any) -> Any:
    rate = tf.cast(optimizer.learning_rate, var_dtype)
    return rate / (1.0 + tf.cast(optimizer._initial_decay, var_dtype) * tf.cast(optimizer.iterations, var_dtype))


def _set_hyper(optimizer: Any, name: str, value: Any) -> None:
    if name in ("learning_rate", "lr"):
        set_rate(optimizer, value)
    elif name == "decay":
        object.__setattr__(optimizer, "_initial_decay", float(value))
    else:
        object.__setattr__(optimizer, name, value)


def _get_hyper(optimizer: Any, name: str, dtype: Any = None) -> Any:
    value = optimizer._initial_decay if name == "decay" else getattr(optimizer, name)
    value = value() if callable(value) else value
    return value if dtype is None else tf.cast(value, dtype)


def _serialize_hyperparameter(optimizer: Any, hyperparameter_name: str) -> Any:
    """A hyperparameter as plain data, for `get_config`."""
    rates = ("learning_rate", "lr")
    value = optimizer._learning_rate if hyperparameter_name in rates else _get_hyper(optimizer, hyperparameter_name)
    if isinstance(value, keras.optimizers.schedules.LearningRateSchedule):
        return keras.optimizers.schedules.serialize(value)
    return keras.ops.convert_to_numpy(value).item() if keras.ops.is_tensor(value) or hasattr(value, "numpy") else value


def _create_all_weights(optimizer: Any, var_list: Any) -> None:
    if not optimizer.built:
        optimizer.build(list(var_list))


#: Keras 2's methods, for the base class of Keras 3's optimizers.
_METHODS: dict[str, Any] = {
    **SLOTS,
    "_resource_apply_dense": _apply_dense,
    "_resource_apply_sparse": _apply_sparse,
    "_resource_apply_sparse_duplicate_indices": _apply_sparse,
    "_prepare_local": _prepare_local,
    "_fallback_apply_state": _fallback_apply_state,
    "_decayed_lr": _decayed_lr,
    "_set_hyper": _set_hyper,
    "_get_hyper": _get_hyper,
    "_serialize_hyperparameter": _serialize_hyperparameter,
    "_create_slots": lambda optimizer, var_list: None,
    "_create_hypers": lambda optimizer: None,
    "_create_all_weights": _create_all_weights,
    "_call_if_callable": lambda optimizer, param: param() if callable(param) else param,
}
