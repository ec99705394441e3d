"""Saves and loads weights as Keras 2 did: in any file, as a TensorFlow checkpoint unless its name ends in ".h5"."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import keras
import tensorflow as tf

from keras_ipu.saving.saved_folder import save_in_folder
from keras_ipu.stock import models as keras_models
from keras_ipu.stock import patches as keras_patches

_KERAS_3 = (".weights.h5", ".weights.json")
_HDF5 = (".h5", ".hdf5")
_INDEX = ".index"
#: Attributes in which Keras lists what other attributes have as well, or what is no part of a checkpoint.
_NOT_CHILDREN = frozenset(
    ("_layers", "_metrics", "_trainable_variables", "_non_trainable_variables", "_seed_generators", "_loss_tracker")
)

_PARTS = (keras.layers.Layer, keras.Variable)
Copies = list[tuple[Any, tf.Variable]]


def install_weight_files() -> None:
    """Patches `save_weights`, `load_weights` and `save`. Calling it again changes nothing."""
    keras_patches.patch_method(keras.Model, "save_weights", _always, _save_weights)
    keras_patches.patch_method(keras.Model, "load_weights", _always, _load_weights)
    keras_patches.patch_method(keras.Model, "save", _always, _save)


def _always(_: Any) -> bool:
    return True


def _save_weights(stock: Callable[..., Any], model: Any, filepath: Any, overwrite: bool = True, **kwargs: Any) -> None:
    path, kind = os.fspath(filepath), kwargs.pop("save_format", None)
    kwargs.pop("options", None)
    if kwargs or path.endswith(_KERAS_3):
        stock(model, filepath, overwrite, **kwargs)
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    as_hdf5 = kind in ("h5", "keras") or (kind is None and path.endswith(_HDF5))
    written = Path(path if as_hdf5 else path + _INDEX)
    if not keras_models.may_write(written, overwrite):
        return
    if as_hdf5:
        with h5py.File(path, "w") as file:
            keras_models.save_weights_to_hdf5(file, model)
        return
    _with_copies(model, lambda checkpoint: checkpoint.write(path))
    folder = Path(path).parent
    (folder / "checkpoint").write_text(str(tf.compat.v1.train.generate_checkpoint_state_proto(str(folder), path)))


def _load_weights(stock: Callable[..., Any], model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
    """Returns the status of a TensorFlow checkpoint, as Keras 2 did; None for other files.

    Raises:
        ValueError: for a checkpoint whose weights are asked for by name, or as far as their shapes match.
    """
    path = os.fspath(filepath)
    kwargs.pop("options", None)
    if tf.io.gfile.exists(path + _INDEX):
        return _load_checkpoint(model, path, [*args, *kwargs.values()])
    if path.endswith((*_KERAS_3, *_HDF5, ".keras")) or not os.path.isfile(path) or not h5py.is_hdf5(path):
        stock(model, filepath, *args, **kwargs)
        return None
    with h5py.File(path, "r") as file:
        keras_models.load_weights_from_hdf5(file, model, *args, **kwargs)
    return None


def _load_checkpoint(model: Any, path: str, options: list[Any]) -> Any:
    if any(options):
        raise ValueError(
            "Weights may be loaded `by_name`, or with `skip_mismatch`, from HDF5 files alone. Received: the TensorFlow "
            f"checkpoint {path!r}. Save them with a name that ends in '.h5', or load all of them."
        )
    copies: Copies = []
    status = _with_copies(model, lambda checkpoint: checkpoint.read(path), copies)
    for variable, copy in copies:
        variable.assign(copy.numpy())
    return status


def _with_copies(model: Any, act: Callable[[tf.train.Checkpoint], Any], copies: Copies | None = None) -> Any:
    """Reads or writes a checkpoint of copies of a model's variables, which lie on the host."""
    if not model.built:
        raise ValueError(
            f"The model {model.name!r} must be built before its weights are written to a TensorFlow checkpoint or read "
            "from one: call it or `build` it first. Received: a model without variables."
        )
    kept = [] if copies is None else copies
    with tf.init_scope(), tf.device("/device:CPU:0"):
        return act(_tree(model, kept))


def _tree(model: Any, copies: Copies) -> tf.train.Checkpoint:
    """The objects of a model's checkpoint, named as in Keras 2: layers by number, variables by attribute."""
    made: dict[int, Any] = {}
    children = {name: _node(part, copies, made) for name, part in _numbered_layers(model)}
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and getattr(optimizer, "built", False):
        parts = {f"variable-{place}": _copy(each, copies, made) for place, each in enumerate(optimizer.variables)}
        kind = f"{type(optimizer).__name__}-{len(parts)}"  # another one's variables are not read
        children["optimizer"] = tf.train.Checkpoint(**{kind: tf.train.Checkpoint(**parts)})
    own = {name: _node(part, copies, made) for name, part in _attributes(model)} if not _is_graph(model) else {}
    return _with_children({**own, **children})


def _with_children(children: dict[str, Any]) -> tf.train.Checkpoint:
    """A checkpoint of objects in this order, by which TensorFlow names them: its own constructor sorts them."""
    checkpoint = tf.train.Checkpoint()
    for name, child in children.items():
        setattr(checkpoint, name, child)
    return checkpoint


def _is_graph(model: Any) -> bool:
    return isinstance(model, keras.Sequential) or hasattr(model, "_operations")


def _numbered_layers(model: Any) -> Iterator[tuple[str, Any]]:
    if not _is_graph(model):
        return
    with_weights = 0
    for place, layer in enumerate(model.layers):
        if layer.weights:
            yield f"layer_with_weights-{with_weights}", layer
            with_weights += 1
        yield f"layer-{place}", layer


def _node(part: Any, copies: Copies, made: dict[int, Any]) -> Any:
    """The checkpoint's object for a layer, a list of layers, or a variable."""
    if isinstance(part, keras.Variable):
        return _copy(part, copies, made)
    if id(part) not in made:
        made[id(part)] = node = tf.train.Checkpoint()
        children = _numbered_layers(part) if _is_graph(part) else _attributes(part)
        for name, child in children:
            setattr(node, name, _node(child, copies, made))
    return made[id(part)]


def _attributes(owner: Any) -> Iterator[tuple[str, Any]]:
    """The variables and layers among an object's attributes, or in a list; `_kernel` is Keras 2's `kernel`."""
    if isinstance(owner, (list, tuple)):
        items = ((str(place), each) for place, each in enumerate(owner))
    else:
        items = ((name, each) for name, each in vars(owner).items() if name not in _NOT_CHILDREN)
    for name, each in items:
        if isinstance(each, keras.Variable):
            yield name.lstrip("_"), each
        elif getattr(each, "weights", None) if isinstance(each, keras.layers.Layer) else _has_parts(each):
            yield name, each


def _has_parts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(each, _PARTS) for each in value)


def _copy(variable: Any, copies: Copies, made: dict[int, Any]) -> tf.Variable:
    if id(variable) not in made:
        made[id(variable)] = tf.Variable(keras.ops.convert_to_numpy(variable))
        copies.append((variable, made[id(variable)]))
    return made[id(variable)]


def _save(
    stock: Callable[..., Any], model: Any, filepath: Any, overwrite: bool = True, *args: Any, **kwargs: Any
) -> Any:
    """Saves a model in a folder where its name is that of no file format; Keras loads it from there."""
    path = os.fspath(filepath)
    if path.endswith((".h5", ".hdf5", ".keras")) or path.startswith("hf://") or "zipped" in kwargs:
        return stock(model, filepath, overwrite, *args, **kwargs)
    kinds = {name: kwargs.pop(name) for name in ("include_optimizer", "save_format", "save_traces") if name in kwargs}
    if kinds.get("save_format") in ("h5", "keras"):
        raise ValueError(f"The name must end as that of a file in {kinds['save_format']!r} format. Received: {path!r}")
    return save_in_folder(stock, model, filepath, overwrite, *args, **kwargs)
