"""Everything the project takes from Keras beyond its public interface.

If Keras moves one of these, `tests/test_private_api.py` names it.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from keras.src import backend as _backend
from keras.src.backend.common import global_state
from keras.src.backend.common import masking as _masking
from keras.src.backend.common.stateless_scope import StatelessScope
from keras.src.layers.core.input_layer import InputLayer
from keras.src.layers.layer import CallContext
from keras.src.models import cloning as _cloning
from keras.src.models import functional as _functional
from keras.src.models.functional import Functional
from keras.src.models.sequential import Sequential
from keras.src.ops.node import Node
from keras.src.ops.operation import Operation
from keras.src.ops.symbolic_arguments import SymbolicArguments

if _backend.backend() == "jax":
    from keras.src.backend.jax import trainer as _trainers

    _ITERATOR, _TRAINER = "JAXEpochIterator", "JAXTrainer"
else:
    from keras.src.backend.tensorflow import trainer as _trainers

    _ITERATOR, _TRAINER = "TFEpochIterator", "TensorFlowTrainer"

_within_sequential: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_within_sequential", default=False)

_NAME_COUNTS = "object_name_uids"

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


def strategy_of(model: Any) -> Any:
    """The strategy in whose scope a model was made, or None."""
    return getattr(model, "_distribute_strategy", None)


def compiled_with(model: Any) -> dict[str, Any]:
    """What a model was last compiled with, by argument, as it was given."""
    config: dict[str, Any] = model._compile_config.config
    return config


def adopt(optimizer: Any, strategy: Any) -> None:
    """Makes an optimizer, and the one it may wrap, belong to a strategy, wherever it was made."""
    while optimizer is not None:
        optimizer._distribution_strategy = strategy
        optimizer = getattr(optimizer, "inner_optimizer", None)


def scope_of_optimizer(optimizer: Any) -> Any:
    """The name scope in which Keras builds an optimizer."""
    return _backend.name_scope(optimizer.name, caller=optimizer)


@contextlib.contextmanager
def applying(optimizer: Any, ours: Callable[..., Any]) -> Iterator[None]:
    """Within it, `optimizer.apply(gradients, variables)` is `ours(stock, gradients, variables)`.

    An optimizer with an `apply_gradients` of its own has that taken over, so that it too sees what `ours` hands on.
    """
    own = _has_own(optimizer, "apply_gradients")
    name = "apply_gradients" if own else "apply"
    stock = getattr(optimizer, name)

    def apply(grads: Any, trainable_variables: Any = None) -> Any:
        return ours(stock, list(grads), trainable_variables)

    def apply_gradients(grads_and_vars: Any) -> Any:
        grads, variables = zip(*grads_and_vars, strict=True)
        return ours(lambda new, of: stock(list(zip(new, of, strict=True))), list(grads), variables)

    # Past Keras's own `__setattr__`, which would track it.
    object.__setattr__(optimizer, name, apply_gradients if own else apply)
    try:
        yield
    finally:
        object.__delattr__(optimizer, name)


def _has_own(optimizer: Any, name: str) -> bool:
    """Whether a class of the user defines an optimizer's method."""
    owner = next(kind for kind in type(optimizer).__mro__ if name in vars(kind))
    return not owner.__module__.startswith(("keras.src.", "keras_ipu."))


class ReadFrom(StatelessScope):
    """Within it, some Keras variables have the values of tensors. Assignments to others take place as ever.

    Args:
        state_mapping: pairs of a variable and a tensor of its shape and dtype.
    """

    def add_update(self, update: tuple[Any, Any]) -> None:
        """Assigns a value to a variable at once: Keras calls it in place of an assignment.

        Args:
            update: the variable and the value.
        """
        variable, value = update
        assert id(variable) not in self.state_mapping, f"{variable.path} is assigned while it is read from a tensor."
        variable._direct_assign(value)


@contextlib.contextmanager
def stateless_applying(optimizer: Any, ours: Callable[..., Any]) -> Iterator[None]:
    """Within it, `optimizer.stateless_apply(...)` is `ours(stock, optimizer_variables, grads, trainable_variables)`."""
    stock = optimizer.stateless_apply

    def stateless_apply(optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        return ours(stock, list(optimizer_variables), list(grads), list(trainable_variables))

    object.__setattr__(optimizer, "stateless_apply", stateless_apply)
    try:
        yield
    finally:
        object.__delattr__(optimizer, "stateless_apply")


def give_state(model: Any, state: dict[str, Any]) -> None:
    """Gives the variables of a model on the JAX backend their values back, which a run has taken.

    Args:
        model: the model.
        state: lists of arrays by `trainable_variables`, `non_trainable_variables`, `optimizer_variables`,
            `metrics_variables`, as far as the run took them.
    """
    model._jax_state = state
    model._jax_state_synced = False
    model.jax_state_sync()


def state_of(model: Any, names: Iterable[str]) -> tuple[list[Any], ...]:
    """What the variables of a model on the JAX backend hold, in lists as `give_state` takes them.

    Args:
        model: the model.
        names: of the parts of the state, such as `trainable_variables`.
    """
    return tuple([variable.value for variable in _variables(model, name)] for name in names)


def _variables(model: Any, name: str) -> Any:
    return model.optimizer.variables if name == "optimizer_variables" else getattr(model, name)


def mark_out_of_date(model: Any) -> None:
    """Tells Keras that the variables of a model on the JAX backend do not hold the state of its run."""
    model._jax_state_synced = False


@contextlib.contextmanager
def calling(model: Any, ours: Callable[..., Any]) -> Iterator[None]:
    """Within it, what `model(...)` calls is `ours(inputs, training=..., mask=...)`."""
    object.__setattr__(model, "call", ours)
    try:
        yield
    finally:
        object.__delattr__(model, "call")


def mask_of(tensor: Any) -> Any:
    """The mask that Keras keeps at a tensor; None if there is none."""
    return _masking.get_keras_mask(tensor)


def give_mask(tensor: Any, mask: Any) -> None:
    """Has Keras keep a mask at a tensor."""
    _masking.set_keras_mask(tensor, mask)


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


def training_now() -> bool:
    """Whether the layer that is being called is called to train."""
    context = global_state.get_global_attribute("current_call_ctx")
    return bool(context is not None and context.get_value("training"))


def made_by(tensor: Any) -> Any:
    """The layer that gave a symbolic tensor."""
    return tensor._keras_history.operation


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


def calls_of(operation: Any) -> list[Any]:
    """The nodes of the calls of a layer or another operation, in the order of the calls."""
    nodes: list[Any] = operation._inbound_nodes
    return nodes


def forget_calls(nodes: Iterable[Any]) -> None:
    """Forgets the latest calls of layers as far as they are among these nodes, so that the next call counts on."""
    dropped = set(map(id, nodes))
    for operation in {id(node.operation): node.operation for node in nodes}.values():
        while operation._inbound_nodes and id(operation._inbound_nodes[-1]) in dropped:
            operation._inbound_nodes.pop()


def graph_nodes(graph: Any) -> list[Any]:
    """The nodes of a `keras.Function` in the order in which it runs them, without those of its inputs."""
    ordered = [node for depth in sorted(graph._nodes_by_depth, reverse=True) for node in graph._nodes_by_depth[depth]]
    return [node for node in ordered if node.operation and not node.is_input]


def graph_structures(graph: Any) -> tuple[Any, Any]:
    """The structures of a `keras.Function`'s inputs and outputs, of symbolic tensors."""
    return graph._inputs_struct, graph._outputs_struct


def sequential_graph(model: Any) -> Any:
    """The functional model within a `Sequential`, or None if it is not built or cannot be one."""
    return model._functional


def standardized_inputs(functional: Any, inputs: Any) -> list[Any]:
    """The flat tensors that a functional model feeds its graph for given inputs."""
    tensors: list[Any] = functional._standardize_inputs(inputs)
    return tensors


def build_shapes(model: Any) -> dict[str, Any] | None:
    """The shapes a layer was built with, by argument; None if it was not."""
    shapes: dict[str, Any] | None = model._build_shapes_dict
    return shapes


def has_functional_constructor(model: Any) -> bool:
    """Whether Keras makes a functional model anew from its inputs and outputs, not from arguments of its own."""
    return bool(_functional.functional_like_constructor(type(model)))


def symbolic_arguments(*args: Any) -> Any:
    """Arguments of a call with symbolic tensors among them, whose `fill_in` puts values in their places."""
    return SymbolicArguments(*args)


def takes_training(operation: Any) -> bool:
    """Whether Keras passes an operation the model's `training` argument."""
    return "training" in getattr(operation, "_call_context_args", {})


@contextlib.contextmanager
def model_call(model: Any, training: bool | None, first: bool) -> Iterator[None]:
    """Layers called within it are called by `model`, as within its `__call__`.

    Args:
        model: the model.
        training: its `training` argument.
        first: whether the call begins here, rather than going on: the losses of the last call are dropped.
    """
    key = "current_call_ctx"
    outer = global_state.get_global_attribute(key)
    context = CallContext(entry_layer=model) if outer is None else outer
    if outer is None and first:
        model._clear_losses()
    context.set_value("training", training)
    global_state.set_global_attribute(key, context)
    try:
        with name_scope_of(model):
            yield
    finally:
        global_state.set_global_attribute(key, outer)


def name_scope_of(layer: Any) -> contextlib.AbstractContextManager[Any]:
    """Layers built within it belong to `layer` by their variables' paths."""
    scope: contextlib.AbstractContextManager[Any] = layer._open_name_scope()
    return scope


def in_call() -> bool:
    """Whether a layer is being called."""
    return global_state.get_global_attribute("current_call_ctx") is not None


@contextlib.contextmanager
def fresh_names() -> Iterator[None]:
    """Within it, Keras counts the names it gives to layers from the beginning; afterwards it goes on as before."""
    before = global_state.get_global_attribute(_NAME_COUNTS)
    global_state.set_global_attribute(_NAME_COUNTS, collections.defaultdict(int))
    try:
        yield
    finally:
        global_state.set_global_attribute(_NAME_COUNTS, before)
