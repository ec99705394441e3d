"""Graph of layer calls of a Keras model, and their order of execution.

A functional model is such a graph, a built `Sequential` keeps one, and a subclassed model is called once with symbolic
tensors to find its own.
"""

from __future__ import annotations

import enum
import inspect
import operator
from typing import Any

import keras

from keras_ipu.options.model_state import options_of, state_of, update_state
from keras_ipu.pipeline.stage_scopes import recorded_stage, stages_are_used, stages_entered
from keras_ipu.stock import graphs as keras_graphs
from keras_ipu.stock import models as keras_models


class _Unset(int):
    """`training` argument of a trace: false, and told apart from one that a `call` passes on purpose."""

    def __reduce__(self) -> str:
        return "UNSET"


UNSET: Any = _Unset(0)
"""What a subclassed model's graph is traced with for `training`: the call gives whichever it is given."""


class ModelKind(enum.Enum):
    """Kind of a Keras model: functional, sequential or subclassed."""

    FUNCTIONAL = "Functional"
    SEQUENTIAL = "Sequential"
    SUBCLASSED = "Model"


def kind_of(model: Any) -> ModelKind:
    """Returns the kind of a Keras model."""
    if isinstance(model, keras.Sequential):
        return ModelKind.SEQUENTIAL
    return ModelKind.FUNCTIONAL if isinstance(model, keras_graphs.Functional) else ModelKind.SUBCLASSED


def graph_of(model: Any) -> Any:
    """The `keras.Function` of a model's calls, or None if it is not built."""
    kind = kind_of(model)
    if kind is ModelKind.FUNCTIONAL:
        return model
    if kind is ModelKind.SEQUENTIAL:
        return keras_graphs.sequential_graph(model)
    if state_of(model).graph is None and (shapes := keras_graphs.build_shapes(model)):
        trace(model, symbolic_inputs(model, next(iter(shapes.values()))))
    return state_of(model).graph


def post_order(model: Any) -> list[Any]:
    """The nodes of a model's calls of layers, inputs left out, in the order in which they run.

    Raises:
        RuntimeError: if the model has no graph: a `Sequential` that cannot have one, or a model that is not built.
    """
    graph = graph_of(model)
    if graph is not None:
        return keras_graphs.graph_nodes(graph)
    if kind_of(model) is ModelKind.SEQUENTIAL and model.built:
        raise RuntimeError(
            f"The Sequential model {model.name} cannot be represented as a graph network, this could be because:\n"
            " * A layer in your model failed to evaluate.\n * The layer is dynamic and therefore not graph compatible."
        )
    raise RuntimeError(
        f"Cannot get the layers' order of execution for model `{model.name}` which has not been built yet. Please "
        "call `model.build()` first."
    )


def node_index(node: Any) -> int:
    """Returns the index of a node among its layer's calls, from 0."""
    return next(place for place, each in enumerate(keras_graphs.calls_of(node.operation)) if each is node)


def build_graph(model: Any, inputs: Any) -> None:
    """Builds a model's graph, if it has none, from the tensors that it will be called with.

    Args:
        model: the model.
        inputs: a structure of tensors or of `tf.TensorSpec`s: what the model takes, batch dimension included.
    """
    if graph_of(model) is not None:
        return
    if kind_of(model) is ModelKind.SEQUENTIAL:
        model.build(keras.tree.map_structure(lambda spec: tuple(spec.shape), inputs))
    else:
        trace(model, _inputs_for(model, inputs))


def may_have_stages(model: Any) -> bool:
    """Returns whether a model may have stages: the program has imported `PipelineStage`, or set options of pipelines.

    Nothing here imports that module before the program does, which may be as late as in a model's `call`.
    """
    return stages_are_used() or options_of(model).says_pipeline


def has_stages(model: Any, inputs: Any) -> bool:
    """Returns whether a subclassed model has layers, or a `call`, with `PipelineStage` scopes. It may build the layers.

    Args:
        model: the model.
        inputs: a structure of tensors or of `tf.TensorSpec`s: what the model takes, batch dimension included.
    """
    if not may_have_stages(model):
        return False
    if not is_called(model):
        return has_staged_layers(model)
    symbolic = _inputs_for(model, inputs)
    if not model.built and type(model).build is not keras.Model.build:  # which may make layers that `call` uses
        with keras_models.strategy_of(model).scope():
            model.build(shapes_of(symbolic))
    return build_layers(model, symbolic)


def build_layers(model: Any, inputs: Any) -> bool:
    """Builds the layers of a subclassed model as Keras does: its `call` is run without recording a graph.

    Args:
        model: the model.
        inputs: a structure of `keras.Input`s.

    Returns:
        Whether any layers or calls were within `PipelineStage` scopes.
    """
    before = stages_entered()
    with keras_models.strategy_of(model).scope(), keras_graphs.name_scope_of(model):
        model.compute_output_spec(inputs)
    return stages_entered() > before or has_staged_layers(model)


def is_called(model: Any) -> bool:
    """Returns whether a model has a `call` of its own, which its steps use: others have a `train_step` alone."""
    return type(model).call is not keras.Model.call


def has_staged_layers(model: Any) -> bool:
    """Returns whether layers of a model were made in `PipelineStage` scopes."""
    return any(recorded_stage(layer) is not None for layer in getattr(model, "layers", ()))


def trace(model: Any, inputs: Any) -> None:
    """Calls a subclassed model with symbolic tensors, and keeps the graph and the order of the calls of its layers.

    Layers that are not built are built by it; variables, such as those of random numbers, keep their values. A branch
    on `training` is taken as if it was false. Keras passes it on to layers that are called without it, and else records
    their defaults as if `call` had passed them.

    Args:
        model: the model.
        inputs: a structure of `keras.Input`s.
    """
    keras_graphs.clear_calls(state_of(model).graph_nodes)
    given = {"training": UNSET} if "training" in inspect.signature(model.call).parameters else {}
    looked_at = keras_graphs.call_is_looked_at(model)
    with keras_models.strategy_of(model).scope(), looked_at, keras_graphs.model_call(model, UNSET, first=True):
        outputs = model.call(inputs, **given)
    graph = keras.Function(inputs, outputs, name=f"{model.name}_graph")
    update_state(model, graph=graph, graph_nodes=tuple(keras_graphs.graph_nodes(graph)), scopes_read=False)


def symbolic_inputs(model: Any, shapes: Any) -> Any:
    """`keras.Input`s for a structure of shapes; `keras.Input`s among them stay."""
    if isinstance(shapes, dict):
        return {name: symbolic_inputs(model, shape) for name, shape in shapes.items()}
    if keras.backend.is_keras_tensor(shapes):
        return shapes
    if isinstance(shapes, (list, tuple)) and any(not _is_dimension(size) for size in shapes):
        return [symbolic_inputs(model, shape) for shape in shapes]
    return _input(model, shapes, model.input_dtype)


def shapes_of(inputs: Any) -> Any:
    """The shapes of a structure of `keras.Input`s, as `build` takes them."""
    return keras.tree.map_structure(lambda tensor: tuple(tensor.shape), inputs)


def _is_dimension(size: Any) -> bool:
    return size is None or hasattr(size, "__index__")  # a scalar tensor is one too


def _inputs_for(model: Any, inputs: Any) -> Any:
    return keras.tree.map_structure(lambda spec: _input(model, spec.shape, spec.dtype), inputs)


def _input(model: Any, shape: Any, dtype: Any) -> Any:
    dtype = keras.backend.standardize_dtype(dtype)
    floating = "float" in dtype and model.autocast
    shape = tuple(None if size is None else operator.index(size) for size in shape)
    return keras.Input(batch_shape=shape, dtype=model.input_dtype if floating else dtype)
