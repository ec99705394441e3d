"""Layers at the inputs of a functional model that only the host can run, such as `StringLookup`.

    batch ─► these layers, on the host ─► batch of numbers ─► the model's other layers, on the device

The device has no strings and no look-up tables. Such layers have no weights that are trained, so that a batch can go
through them before the device is fed, while other steps run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import operator
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from ipu_tf._config.state import graphcore_rules
from ipu_tf._state.once import first_time
from keras_ipu.pipeline.assigned_stages import assigned
from keras_ipu.stock import graphs as keras_graphs
from keras_ipu.stock import models as keras_models
from keras_ipu.stock import patches as keras_patches

_log = logging.getLogger("ipu_tf")

_KINDS = tuple(
    getattr(keras.layers, name)
    for name in ("StringLookup", "IntegerLookup", "TextVectorization", "Hashing", "HashedCrossing")
)
_VALUES = "values of the host's layers"
"""The key of a batch's inputs that have gone through these layers."""

_ATTRIBUTE = "_ipu_host_layers"
_STEPS = ("train_step", "test_step", "predict_step", "compute_loss")


class _TracedModel:
    """A model of layers without training as a TensorFlow function, which is traced again if a layer was adapted.

    Args:
        model: the model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._layers = keras_graphs.layers_within(model)
        self._attributes: list[Any] = []
        self._function: Callable[..., Any] | None = None

    def __call__(self, inputs: Any) -> tuple[Any, ...]:
        """Returns the model's outputs for a batch."""
        if self._function is None or not _same(self._attributes, self._now()):
            self._function = tf.function(self._outputs, autograph=False, reduce_retracing=True)
        outputs = self._function(inputs)
        self._attributes = self._now()  # after tracing, which sets some of them
        return outputs

    def _outputs(self, inputs: Any) -> tuple[Any, ...]:
        return tuple(keras.tree.flatten(self._model(inputs)))

    def _now(self) -> list[Any]:
        return [value for layer in self._layers for value in vars(layer).values()]


def _same(ones: list[Any], others: list[Any]) -> bool:
    return len(ones) == len(others) and all(map(operator.is_, ones, others))


@dataclasses.dataclass(frozen=True)
class HostLayers:
    """A model, cut behind the layers that only the host can run.

    Attributes:
        model: the model.
        inputs: its symbolic inputs.
        before: from its inputs to what the device is fed.
        after: from that to its outputs.
    """

    model: Any
    inputs: list[Any]
    before: _TracedModel
    after: Any

    def prepared(self, batch: Any) -> Any:
        """Returns a batch whose inputs are what the device is fed; one that is prepared as it is."""
        columns = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
        if isinstance(columns[0], dict) and _VALUES in columns[0]:
            return batch
        inputs = keras.tree.map_structure(tf.convert_to_tensor, columns[0])
        return ({_VALUES: self.before(inputs)}, *columns[1:])

    def prepared_dataset(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Returns the dataset of prepared batches."""
        return dataset.map(lambda *columns: self.prepared(columns), num_parallel_calls=tf.data.AUTOTUNE)

    @contextlib.contextmanager
    def continued(self, *batches: Any) -> Iterator[tuple[Any, ...]]:
        """Context in which the model's calls, one for each batch in order, go on from prepared batches.

        It gives batches whose inputs look like the model's own, which nothing computes with.
        """
        waiting = [list(columns[0][_VALUES]) for columns in batches]
        given = tuple((self._looks(columns[0][_VALUES]), *columns[1:]) for columns in batches)

        def call(inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
            values = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            return keras_graphs.run_graph(self.after, values, training)

        with keras_models.calling(self.model, call):
            yield given

    def _looks(self, values: tuple[tf.Tensor, ...]) -> Any:
        size = values[0].shape[0]
        zeros = [tf.zeros([size, *(side or 1 for side in each.shape[1:])], each.dtype) for each in self.inputs]
        graph = _graph(self.model)
        return keras.tree.pack_sequence_as(keras_graphs.graph_structures(graph)[0], zeros)


@dataclasses.dataclass(frozen=True)
class _Known:
    """What was found in a model's graph."""

    graph: Any
    layers: HostLayers | None


def host_layers(model: Any) -> HostLayers | None:
    """Cuts a model behind its layers for the host; None if it has none, or if its steps are not Keras's own."""
    graph = _graph(model)
    if graph is None or graphcore_rules() or assigned(model):
        return None
    known = vars(model).get(_ATTRIBUTE)
    if known is None or known.graph is not graph:
        # Past Keras's attribute tracking, and no container that saving walks through: its layers are not the model's.
        known = vars(model)[_ATTRIBUTE] = _Known(graph, _found(model, graph))
    return known.layers


def _found(model: Any, graph: Any) -> HostLayers | None:
    nodes = keras_graphs.graph_nodes(graph)
    wanted = {id(tensor) for node in nodes if _needs_host(node.operation) for tensor in node.outputs}
    if not wanted or any(keras_patches.overridden(model, step) for step in _STEPS):
        return None
    for node in reversed(nodes):
        if any(id(tensor) in wanted for tensor in node.outputs):
            wanted.update(id(tensor) for tensor in node.input_tensors)
    on_host = [node for node in nodes if any(id(tensor) in wanted for tensor in node.outputs)]
    if any(getattr(node.operation, "trainable_weights", ()) for node in on_host):
        return None
    return _cut(model, graph, on_host, [node for node in nodes if node not in on_host])


def after_host_layers(model: Any, *batches: Any) -> contextlib.AbstractContextManager[tuple[Any, ...]]:
    """Context in which a step's calls of a model go on from what the device was fed; it gives the step's batches."""
    layers = host_layers(model)
    return contextlib.nullcontext(batches) if layers is None else layers.continued(*batches)


def _cut(model: Any, graph: Any, on_host: list[Any], others: list[Any]) -> HostLayers | None:
    inputs, outputs = keras_graphs.graph_structures(graph)
    flat = keras.tree.flatten(inputs)
    known = {id(tensor) for tensor in flat} | {id(tensor) for node in on_host for tensor in node.outputs}
    used = [tensor for node in others for tensor in node.input_tensors] + keras.tree.flatten(outputs)
    border = list({id(tensor): tensor for tensor in used if id(tensor) in known}.values())
    if any(tensor.dtype == "string" for tensor in border):
        return None
    names = sorted({node.operation.name for node in on_host})
    if first_time("host layers", model.name):
        _log.warning(
            "%s: %s run on the host, batch by batch: the device has no strings and look-up tables. See docs/keras.md.",
            model.name,
            ", ".join(names),
        )
    before = keras.Model(inputs, border, name=f"{model.name}_on_host")
    return HostLayers(
        model, flat, _TracedModel(before), keras.Function(border, outputs, name=f"{model.name}_on_device")
    )


def _graph(model: Any) -> Any:
    if isinstance(model, keras.Sequential):
        return keras_graphs.sequential_graph(model)
    return model if isinstance(model, keras_graphs.Functional) else None


def _needs_host(operation: Any) -> bool:
    return isinstance(operation, keras.layers.Layer) and any(
        isinstance(layer, _KINDS) for layer in keras_graphs.layers_within(operation)
    )
