"""Keras 2's slots of optimizers on Keras 3: variables that an optimizer keeps for each weight, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

#: Slots of Keras's own optimizers, as Keras 2 names them: the attributes in which Keras 3 has them.
_OWN_SLOTS = {
    "momentum": ("momentums", "_momentums"),
    "m": ("_momentums", "_m"),
    "v": ("_velocities", "_u", "_v"),
    "vhat": ("_velocity_hats",),
    "rms": ("_velocities",),
    "mg": ("_average_gradients",),
    "accumulator": ("_accumulators",),
    "accum_grad": ("_accumulated_grads",),
    "accum_var": ("_accumulated_delta_vars",),
}


def host_variable(variable: Any) -> Any:
    """TensorFlow's variable of Keras's; Keras's own on other back ends."""
    is_keras = isinstance(variable, keras.Variable) and keras.config.backend() == "tensorflow"
    return variable.value if is_keras else variable


def _add_slot(optimizer: Any, var: Any, slot_name: str, initializer: Any = "zeros", shape: Any = None) -> Any:
    place = optimizer._get_variable_index(var)
    if (place, slot_name) not in optimizer._slots:
        of = optimizer._trainable_variables[place]
        make = (lambda shape, dtype=None: tf.cast(initializer, dtype)) if tf.is_tensor(initializer) else initializer
        optimizer._slots[place, slot_name] = (
            optimizer.add_variable_from_reference(of, slot_name, make)
            if shape is None
            else optimizer.add_variable(tuple(shape), make, of.dtype, name=f"{slot_name}_{place}")
        )
    return host_variable(optimizer._slots[place, slot_name])


def _get_slot(optimizer: Any, var: Any, slot_name: str) -> Any:
    """A variable that an optimizer keeps for a weight: of `add_slot`, or of Keras's own optimizer."""
    place = optimizer._get_variable_index(var)
    made = vars(optimizer).get("_slots", {}).get((place, slot_name))
    if made is not None:
        return host_variable(made)
    for name in _OWN_SLOTS.get(slot_name, ()):
        if getattr(optimizer, name, None):
            return host_variable(getattr(optimizer, name)[place])
    raise KeyError(f"{type(optimizer).__name__} must have a slot {slot_name!r} for {var.name}: call `add_slot` first.")


def _slot_names(optimizer: Any) -> list[str]:
    return list(dict.fromkeys(name for _, name in vars(optimizer).get("_slots", {})))


def _add_weight(
    optimizer: Any, name: str, shape: Any, dtype: Any = None, initializer: Any = "zeros", **without_meaning: Any
) -> Any:
    start = keras.initializers.Constant(initializer) if isinstance(initializer, (int, float)) else initializer
    return host_variable(optimizer.add_variable(tuple(shape), start, dtype, name=name))


def _scatter(method: str) -> Callable[..., Any]:
    def scatter(optimizer: Any, x: Any, i: Any, v: Any) -> Any:
        getattr(x, method)(tf.IndexedSlices(v, i))
        return x.value()

    return scatter


#: Keras 2's methods that make, find and change variables.
SLOTS: dict[str, Any] = {
    "add_slot": _add_slot,
    "get_slot": _get_slot,
    "get_slot_names": _slot_names,
    "add_weight": _add_weight,
    "_resource_scatter_add": _scatter("scatter_add"),
    "_resource_scatter_update": _scatter("scatter_update"),
}
