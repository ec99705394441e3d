"""How the project puts itself in the place of methods of Keras: its hooks on models and on their trainer.

If Keras moves one of these, `tests/project/test_private_api.py` names it.
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


class Replacement(Protocol):
    """What takes over from Keras's trainer for models that are its own."""

    methods: dict[str, Callable[..., Any]]
    """By name of the method: `ours(stock, model, *args, **kwargs)`."""

    def owns(self, model: Any) -> bool:
        """Whether a model is one of ours."""
        ...

    def epoch_iterator(self, *args: Any, **kwargs: Any) -> Any:
        """Ours or the stock epoch iterator, as its `distribute_strategy` says."""
        ...


def install(replacement: Replacement) -> None:
    """Puts a replacement into the trainer of Keras's backend, once. Other models keep the stock behaviour."""
    trainer = Trainer
    if getattr(trainer, "_ipu_replacement", None) is replacement:
        return
    for name, ours in replacement.methods.items():
        # In the class that defines it: Keras asks whether a model's class overrides `Trainer.compile`.
        owner = next(kind for kind in trainer.__mro__ if name in vars(kind))
        setattr(owner, name, _chosen(replacement, getattr(trainer, name), ours))
    setattr(_trainers, _ITERATOR, replacement.epoch_iterator)
    trainer._ipu_replacement = replacement


def overridden(model: Any, name: str) -> bool:
    """Whether a model's class has a method of its own in place of Keras's trainer's."""
    return getattr(type(model), name) is not getattr(Trainer, name)


def _chosen(replacement: Replacement, stock: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if replacement.owns(self):
            return ours(stock, self, *args, **kwargs)
        return stock(self, *args, **kwargs)

    return method


def hook(owner: type, name: str, applies: Callable[[Any], bool], ours: Callable[..., Any]) -> None:
    """Lets `ours(stock, self, *args, **kwargs)` take over a method of a class, once, for objects it applies to.

    Args:
        owner: the class that is changed.
        name: of the method.
        applies: whether an object's method is ours.
        ours: what runs in its place.
    """
    stock = getattr(owner, name)
    if getattr(stock, "_ipu_hook", None) is ours:
        return

    @functools.wraps(stock)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return ours(stock, self, *args, **kwargs) if applies(self) else stock(self, *args, **kwargs)

    method._ipu_hook = ours  # type: ignore[attr-defined]
    setattr(owner, name, method)


def hook_trainer(name: str, ours: Callable[..., Any]) -> None:
    """Lets `ours(stock, model, *args, **kwargs)` take over a method of Keras's trainer for all models, once."""
    owner = next(kind for kind in Trainer.__mro__ if name in vars(kind))
    hook(owner, name, lambda model: True, ours)


def hook_from_config(owner: type, ours: Callable[..., Any]) -> None:
    """Lets `ours(stock, cls, config, custom_objects)` take over a class's `from_config`, once."""
    stock = vars(owner)["from_config"].__func__
    if getattr(stock, "_ipu_hook", None) is ours:
        return

    @functools.wraps(stock)
    def from_config(cls: Any, config: Any, custom_objects: Any = None) -> Any:
        return ours(stock, cls, config, custom_objects)

    from_config._ipu_hook = ours  # type: ignore[attr-defined]
    owner.from_config = classmethod(from_config)  # type: ignore[attr-defined]


def hook_clones(ours: Callable[[Any, Any], None]) -> None:
    """Lets `ours(model, clone)` see the clones that `clone_model` makes of functional and sequential models, once."""
    for name in ("_clone_functional_model", "_clone_sequential_model"):
        stock = getattr(_cloning, name)
        if not hasattr(stock, "_ipu_hook"):
            setattr(_cloning, name, _cloned(stock, ours))


def _cloned(stock: Callable[..., Any], ours: Callable[[Any, Any], None]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def clone(model: Any, *args: Any, **kwargs: Any) -> Any:
        made = stock(model, *args, **kwargs)
        ours(model, made)
        return made

    clone._ipu_hook = ours  # type: ignore[attr-defined]
    return clone


def hook_creation(made: Callable[[Any], None], functional: Callable[[Any], None]) -> None:
    """Lets us see what Keras makes, once.

    Args:
        made: called with each new operation, before it is initialised, and with each new node of a graph.
        functional: called with each new functional model, after it is initialised, except those that a `Sequential`
            keeps for itself.
    """
    if hasattr(Node.__init__, "_ipu_hook"):
        return
    stock_new, stock_node, stock_functional = Operation.__new__, Node.__init__, Functional.__init__

    @functools.wraps(stock_new)
    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        operation = stock_new(cls, *args, **kwargs)
        made(operation)
        return operation

    @functools.wraps(stock_node)
    def node(self: Any, *args: Any, **kwargs: Any) -> None:
        stock_node(self, *args, **kwargs)
        made(self)

    # Keras looks at the names of the arguments, and not behind a wrapper.
    @functools.wraps(stock_functional)
    def init(self: Any, inputs: Any, outputs: Any, name: Any = None, **kwargs: Any) -> None:
        stock_functional(self, inputs, outputs, name=name, **kwargs)
        if not _within_sequential.get():
            functional(self)

    vars(node)["_ipu_hook"] = made
    Operation.__new__ = new
    Node.__init__ = node
    Functional.__init__ = init
    hook(Sequential, "build", lambda model: True, _build_sequential)


def _build_sequential(stock: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    token = _within_sequential.set(True)
    try:
        return stock(model, *args, **kwargs)
    finally:
        _within_sequential.reset(token)


def hook_input_shapes(ours: Callable[[Any], Any], made: Callable[[Any], None]) -> None:
    """Lets `ours` see the `shape` of each new `keras.Input` and say which it shall have, once.

    `made` is called with its layer when that is there.
    """
    stock = InputLayer.__init__
    if hasattr(stock, "_ipu_hook"):
        return

    # Not a wrapper by name: Keras looks at the names of the arguments both behind it and in front of it.
    def init(self: Any, shape: Any = None, *args: Any, **kwargs: Any) -> None:
        stock(self, ours(shape), *args, **kwargs)
        made(self)

    init._ipu_hook = ours  # type: ignore[attr-defined]
    InputLayer.__init__ = init


def add_attribute(owner: type, name: str, descriptor: Any) -> None:
    """Adds an attribute to one of Keras's classes unless it has one of that name already."""
    if name not in vars(owner):
        setattr(owner, name, descriptor)
