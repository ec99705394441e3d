"""Private API of Keras's functional graphs and layer calls.

If Keras moves one of these, `tests/project/test_private_api.py` names it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import keras
from keras.src.backend.common import global_state
from keras.src.backend.common import masking as _masking
from keras.src.layers.layer import CallContext
from keras.src.models import functional as _functional
from keras.src.models.functional import Functional as Functional
from keras.src.models.functional import unpack_singleton
from keras.src.ops.node import KerasHistory as KerasHistory
from keras.src.ops.symbolic_arguments import SymbolicArguments


def get_mask(tensor: Any) -> Any:
    """Returns the Keras mask of a tensor; None if there is none."""
    return _masking.get_keras_mask(tensor)


def set_mask(tensor: Any, mask: Any) -> None:
    """Sets the Keras mask of a tensor."""
    _masking.set_keras_mask(tensor, mask)


def made_by(tensor: Any) -> Any:
    """Returns the layer that produced a symbolic tensor."""
    return tensor._keras_history.operation


def calls_of(operation: Any) -> list[Any]:
    """The nodes of the calls of a layer or another operation, in the order of the calls."""
    nodes: list[Any] = operation._inbound_nodes
    return nodes


def clear_calls(nodes: Iterable[Any]) -> None:
    """Removes these nodes from the latest calls of their layers, so that call indices continue from before."""
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


def run_graph(graph: Any, inputs: list[Any], training: bool | None) -> Any:
    """Runs the layers of a `keras.Function` on flat inputs, as a functional model's call does."""
    outputs = graph._run_through_graph(inputs, lambda operation: _functional.operation_fn(operation, training=training))
    return unpack_singleton(outputs)


def sequential_graph(model: Any) -> Any:
    """The functional model within a `Sequential`, or None if it is not built or cannot be one."""
    return model._functional


def standardized_inputs(functional: Any, inputs: Any) -> list[Any]:
    """The flat tensors that a functional model feeds its graph for given inputs."""
    tensors: list[Any] = functional._standardize_inputs(inputs)
    return tensors


def layers_within(layer: Any) -> list[Any]:
    """A layer and all layers that it is made of."""
    return list(layer._flatten_layers())


def build_shapes(model: Any) -> dict[str, Any] | None:
    """The shapes a layer was built with, by argument; None if it was not."""
    shapes: dict[str, Any] | None = model._build_shapes_dict
    return shapes


def has_functional_constructor(model: Any) -> bool:
    """Returns whether Keras reconstructs a functional model from its inputs and outputs, not from own arguments."""
    return bool(_functional.functional_like_constructor(type(model)))


def symbolic_arguments(*args: Any) -> Any:
    """Arguments of a call with symbolic tensors among them, whose `fill_in` puts values in their places."""
    return SymbolicArguments(*args)


def takes_training(operation: Any) -> bool:
    """Returns whether Keras passes an operation the model's `training` argument."""
    return "training" in getattr(operation, "_call_context_args", {})


@contextlib.contextmanager
def model_call(model: Any, training: bool | None, first: bool) -> Iterator[None]:
    """Context in which layers are called by `model`, as within its `__call__`.

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


@contextlib.contextmanager
def call_is_looked_at(model: Any) -> Iterator[None]:
    """Context in which a `call` runs to be looked at: what it assigns to variables, and adds to losses, is dropped.

    Args:
        model: the model, whose `add_loss` takes no symbolic tensors in Keras.
    """
    own = vars(model)  # past Keras's tracking of attributes
    before = own.get("add_loss")
    own["add_loss"] = lambda loss: None
    try:
        with keras.StatelessScope():
            yield
    finally:
        del own["add_loss"]
        if before is not None:
            own["add_loss"] = before


def name_scope_of(layer: Any) -> contextlib.AbstractContextManager[Any]:
    """Context in which the variables of built layers have paths below `layer`."""
    scope: contextlib.AbstractContextManager[Any] = layer._open_name_scope()
    return scope


def in_call() -> bool:
    """Returns whether a layer is being called."""
    return global_state.get_global_attribute("current_call_ctx") is not None


def keep_inputs_as_they_are(layer: Any) -> None:
    """Lets a layer take tensors of any dtype without casting them."""
    layer._convert_input_args = False
