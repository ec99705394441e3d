"""Patches methods of Keras's classes: models, trainer, `Input`, cloning.

Each is in the table `ipu_tf._patches.table` and can be uninstalled. If Keras moves one of these,
`tests/project/test_private_api.py` names it.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import Any, Protocol

from keras.src import backend as _backend
from keras.src.layers.core.input_layer import InputLayer
from keras.src.models import cloning as _cloning
from keras.src.models.functional import Functional
from keras.src.models.sequential import Sequential
from keras.src.ops.node import Node
from keras.src.ops.operation import Operation

from ipu_tf._patches.import_hooks import after_import
from ipu_tf._patches.installation import replace_in
from ipu_tf._state.context import context_value

if _backend.backend() == "jax":
    from keras.src.backend.jax import trainer as _trainers

    _ITERATOR, _TRAINER = "JAXEpochIterator", "JAXTrainer"
else:
    from keras.src.backend.tensorflow import trainer as _trainers

    _ITERATOR, _TRAINER = "TFEpochIterator", "TensorFlowTrainer"

_within_sequential: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_within_sequential", default=False)


StockEpochIterator: Any = getattr(_trainers, _ITERATOR)
"""Keras's iterator over the executions of an epoch."""


Trainer: Any = getattr(_trainers, _TRAINER)
"""The class of the fit, evaluate and predict of Keras's backend."""


def after_import_of_keras(name: str, callback: Callable[[Any], None]) -> None:
    """Calls a function with each module object of `keras.<name>`, once it is imported.

    `import keras.backend`, `tf.keras.backend` and `import tensorflow.keras.backend` execute a file each, or one again.
    """
    for package in ("keras", "keras._tf_keras.keras", "tensorflow.keras"):
        after_import(f"{package}.{name}", callback)


class TrainerPatch(Protocol):
    """Replacement of Keras's trainer."""

    methods: dict[str, Callable[..., Any]]
    """By name of the method: `ours(stock, model, *args, **kwargs)`, which calls `stock` for other models."""

    def epoch_iterator(self, *args: Any, **kwargs: Any) -> Any:
        """Returns this package's epoch iterator, or the stock one for other models."""
        ...


def install_trainer(replacement: TrainerPatch) -> None:
    """Patches the trainer of Keras's backend with a replacement, once. Other models keep the stock behaviour."""
    for name, ours in replacement.methods.items():
        patch_trainer_method(name, ours)
    replace_in(_trainers, _ITERATOR, lambda stock: replacement.epoch_iterator, by=replacement.epoch_iterator)


def _owner(name: str) -> type:
    """Returns the class that defines a trainer method, since Keras checks whether models override `Trainer.compile`."""
    return next(kind for kind in Trainer.__mro__ if name in vars(kind))


def overridden(model: Any, name: str) -> bool:
    """Returns whether a model's class overrides a method of Keras's trainer."""
    return getattr(type(model), name) is not getattr(Trainer, name)


def patch_method(owner: type, name: str, applies: Callable[[Any], bool], ours: Callable[..., Any]) -> None:
    """Replaces a method of a class by `ours(stock, self, *args, **kwargs)`, once, for objects it applies to.

    Args:
        owner: the class that is changed.
        name: of the method.
        applies: whether an object's method is ours.
        ours: what runs in its place.
    """

    def patched(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return ours(stock, self, *args, **kwargs) if applies(self) else stock(self, *args, **kwargs)

        return method

    replace_in(owner, name, patched, key=ours, by=ours)


def patch_trainer_method(name: str, ours: Callable[..., Any]) -> None:
    """Replaces a method of Keras's trainer by `ours(stock, model, *args, **kwargs)` for all models, once."""
    patch_method(_owner(name), name, lambda model: True, ours)


def patch_from_config(owner: type, ours: Callable[..., Any]) -> None:
    """Replaces a class's `from_config` by `ours(stock, cls, config, custom_objects)`, once."""

    def patched(bound: Any) -> Any:
        stock = bound.__func__

        @functools.wraps(stock)
        def from_config(cls: Any, config: Any, custom_objects: Any = None) -> Any:
            return ours(stock, cls, config, custom_objects)

        return classmethod(from_config)

    replace_in(owner, "from_config", patched, by=ours)


def patch_clone_model(ours: Callable[[Any, Any], None]) -> None:
    """Patches `clone_model` to call `ours(model, clone)` for clones of functional and sequential models, once."""
    for name in ("_clone_functional_model", "_clone_sequential_model"):
        replace_in(_cloning, name, lambda stock: _cloned(stock, ours), by=ours)


def _cloned(stock: Callable[..., Any], ours: Callable[[Any, Any], None]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def clone(model: Any, *args: Any, **kwargs: Any) -> Any:
        made = stock(model, *args, **kwargs)
        ours(model, made)
        return made

    return clone


def patch_calls(operation: type, node: type, made: Callable[[Any], None]) -> None:
    """Patches a Keras to call a function for each new operation and node, once.

    Args:
        operation: the base class of its operations, or layers.
        node: the class of its calls in a graph.
        made: called with each new operation, before it is initialised, and with each new node.
    """

    def creating(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
            operation = stock(cls, *args, **kwargs)
            made(operation)
            return operation

        # Python makes a `__new__` in a class's body a static method as well.
        return staticmethod(new)

    def linking(stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def node(self: Any, *args: Any, **kwargs: Any) -> None:
            stock(self, *args, **kwargs)
            made(self)

        return node

    replace_in(operation, "__new__", creating, by=made)
    replace_in(node, "__init__", linking, by=made)


def patch_construction(made: Callable[[Any], None], functional: Callable[[Any], None]) -> None:
    """Patches Keras to call functions for each new operation, node and functional model, once.

    Args:
        made: called with each new operation, before it is initialised, and with each new node of a graph.
        functional: called with each new functional model, after it is initialised, except those that a `Sequential`
            keeps for itself.
    """

    def initialising(stock: Callable[..., Any]) -> Callable[..., Any]:
        # Keras looks at the names of the arguments, and not behind a wrapper.
        @functools.wraps(stock)
        def init(self: Any, inputs: Any, outputs: Any, name: Any = None, **kwargs: Any) -> None:
            stock(self, inputs, outputs, name=name, **kwargs)
            if not _within_sequential.get():
                functional(self)

        return init

    patch_calls(Operation, Node, made)
    replace_in(Functional, "__init__", initialising, by=functional)
    patch_method(Sequential, "build", lambda model: True, _build_sequential)


def _build_sequential(stock: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    with context_value(_within_sequential, True):
        return stock(model, *args, **kwargs)


def patch_input_shapes(ours: Callable[[Any], Any], made: Callable[[Any], None]) -> None:
    """Patches `keras.Input` so that `ours` maps the `shape` argument of each new one, once.

    `made` is called with its layer when that is there.
    """

    def patched(stock: Callable[..., Any]) -> Callable[..., Any]:
        # Not a wrapper by name: Keras looks at the names of the arguments both behind it and in front of it.
        def init(self: Any, shape: Any = None, *args: Any, **kwargs: Any) -> None:
            stock(self, ours(shape), *args, **kwargs)
            made(self)

        return init

    replace_in(InputLayer, "__init__", patched, by=made)


def add_attribute(owner: type, name: str, descriptor: Any, by: str) -> None:
    """Adds an attribute to one of Keras's classes, for our module `by`, unless it has one of that name already."""
    if name not in vars(owner):
        replace_in(owner, name, lambda absent: descriptor, missing=None, by=by)


def patch_gaussian_blur(ours: Callable[..., Any]) -> None:
    """Replaces Keras's Gaussian blur on TensorFlow by `ours(stock, images, kernel_size, sigma, data_format)`, once."""
    from keras.src.backend.tensorflow import image

    def patched(stock: Callable[..., Any]) -> Callable[..., Any]:
        return functools.wraps(stock)(functools.partial(ours, stock))

    replace_in(image, "gaussian_blur", patched, by=ours)
