"""Keras layers of the addons for Keras 2, made from the source of those for Keras 3 above Keras 2's `Layer`.

They compute with `keras.ops`, which take TensorFlow's tensors of either Keras. What ties them to one is their
base class, and the package `keras` by name.
"""

from __future__ import annotations

import types
from typing import Any

import keras
import tf_keras

from keras_ipu.addons import layers as _layers

__all__ = [
    "AssumeEqualAcrossReplicas",
    "Dropout",
    "EffectiveTransformer",
    "Embedding",
    "GroupNorm",
    "GroupNormalization",
    "InstanceNorm",
    "InstanceNormalization",
    "LayerNorm",
    "LayerNormalization",
    "RecomputationCheckpoint",
    "SerialDense",
]

#: What a new class gets anew.
_OF_THE_CLASS = ("__dict__", "__weakref__", "_api_export_path", "_api_export_symbol_id")


def _layer(original: type) -> Any:
    """Returns the layer of Keras 2 that is like one of this project's for Keras 3, registered for files.

    Raises:
        AttributeError: if it stands above a layer of `keras.layers` that Keras 2 does not have.
    """
    return tf_keras.saving.register_keras_serializable("keras_ipu")(_ported(original))


def _ported(original: type) -> type:
    if original.__module__.startswith("keras."):
        found: type = getattr(tf_keras.layers, original.__name__)
        return found
    cell = types.CellType()
    members = {name: _moved(each, cell) for name, each in vars(original).items() if name not in _OF_THE_CLASS}
    made = type(original.__name__, tuple(_ported(base) for base in original.__bases__), members)
    cell.cell_contents = made
    return made


def _moved(member: Any, owner: types.CellType) -> Any:
    """A member of a class for another class: `super()` means that one's, `keras` and layers are those of Keras 2."""
    if isinstance(member, classmethod):
        return classmethod(_moved(member.__func__, owner))
    if isinstance(member, property):
        return property(*(each and _moved(each, owner) for each in (member.fget, member.fset, member.fdel)))
    if not isinstance(member, types.FunctionType):
        return member
    cells = zip(member.__code__.co_freevars, member.__closure__ or (), strict=True)
    closure = tuple(owner if name == "__class__" else cell for name, cell in cells)
    names = {**member.__globals__, **({"keras": tf_keras} if member.__globals__.get("keras") is keras else {})}
    names |= {name: made for name, each in names.items() if (made := _made(each)) is not None}
    moved = types.FunctionType(member.__code__, names, member.__name__, member.__defaults__, closure)
    moved.__kwdefaults__, moved.__doc__, moved.__module__ = member.__kwdefaults__, member.__doc__, member.__module__
    moved.__qualname__, moved.__annotations__ = member.__qualname__, member.__annotations__
    return moved


def _made(value: Any) -> Any:
    """Returns the layer of this module that is like one for Keras 3; None if there is none by now."""
    name = value.__name__ if isinstance(value, type) else ""
    return globals().get(name) if name and vars(_layers).get(name) is value else None


AssumeEqualAcrossReplicas = _layer(_layers.AssumeEqualAcrossReplicas)
Dropout = _layer(_layers.Dropout)
Embedding = _layer(_layers.Embedding)
GroupNorm = GroupNormalization = _layer(_layers.GroupNormalization)
InstanceNorm = InstanceNormalization = _layer(_layers.InstanceNormalization)
LayerNorm = LayerNormalization = _layer(_layers.LayerNormalization)
EffectiveTransformer = _layer(_layers.EffectiveTransformer)
RecomputationCheckpoint = _layer(_layers.RecomputationCheckpoint)
SerialDense = _layer(_layers.SerialDense)
