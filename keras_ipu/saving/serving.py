"""Exports models for serving: `model.export_for_ipu_serving`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import keras
import numpy as np
import tensorflow as tf

from ipu_tf._serving.export import ExportRequest, export, tensorflow_function
from ipu_tf._serving.export_checks import ServedSteps, Step, checked_directory, input_signature
from ipu_tf.serving import step_loop
from keras_ipu.pipeline.graph import ModelKind, graph_of, kind_of
from keras_ipu.stock import graphs as keras_graphs


class ServingMethods:
    """A method that every model made in the scope of an `IPUStrategy` has."""

    def export_for_ipu_serving(
        self,
        export_dir: str | os.PathLike[str],
        batch_size: int | None = None,
        output_names: str | list[str] | None = None,
        preprocessing_step: Callable[..., Any] | None = None,
        preprocessing_step_signature: Sequence[tf.TensorSpec] | None = None,
        postprocessing_step: Callable[..., Any] | None = None,
        postprocessing_step_signature: Sequence[tf.TensorSpec] | None = None,
        purge_export_dir: bool = False,
    ) -> Any:
        """Writes the model as a SavedModel that runs anywhere, with the device's program beside it.

        The device's program makes `steps_per_execution` results before it starts anew. A pipelined model is exported
        as one program without stages: the numbers are the same.

        Args:
            export_dir: where to write; empty, or not there yet.
            batch_size: of the exported model; by default the one that the model was built with.
            output_names: of the results; by default `output_0`, `output_1` and so on.
            preprocessing_step: what the host makes of the inputs first.
            preprocessing_step_signature: a `tf.TensorSpec` for each of its arguments; not needed for a `tf.function`
                with an `input_signature`.
            postprocessing_step: what the host makes of the results.
            postprocessing_step_signature: a `tf.TensorSpec` for each of its arguments; as above.
            purge_export_dir: whether a directory that is not empty is emptied.

        Returns:
            The exported function as a `tf.function` that runs the model on the device; gives a list of tensors, or a
            dictionary by `output_names`.

        Raises:
            RuntimeError: for a model that is not built.
            ValueError: if the batch size is not known, the directory is not empty, or steps or names do not fit.
            TypeError: for signatures or names that are none.
        """
        directory = checked_directory(export_dir, purge_export_dir)
        structure, signature = _inputs(self, None if batch_size is None else int(batch_size))
        predict_step = _predict_step(self, structure, signature)
        steps = ServedSteps(
            predict_step,
            signature,
            None,
            preprocessing_step,
            preprocessing_step_signature,
            postprocessing_step,
            postprocessing_step_signature,
        )
        steps.check()
        before = preprocessing_step
        request = ExportRequest(
            predict_step,
            signature,
            step_loop(predict_step, int(self.steps_per_execution)),  # type: ignore[attr-defined]
            signature if before is None else input_signature(before, preprocessing_step_signature),
            before,
            postprocessing_step,
            steps.postprocessing_signature(),
            output_names,
        )
        return export(request, directory)


def _predict_step(model: Any, structure: Any, signature: list[tf.TensorSpec]) -> Step:
    """Returns a function from the flat tensors of a model's inputs to those of its outputs."""
    if keras.backend.backend() == "jax":
        return _jax_predict_step(model, structure, signature)

    def predict_step(*tensors: tf.Tensor) -> Any:
        inputs = keras.tree.pack_sequence_as(structure, list(tensors))
        return keras.tree.flatten(model(inputs, training=False))

    return predict_step


def _inputs(model: Any, batch_size: int | None) -> tuple[Any, list[tf.TensorSpec]]:
    """The structure of a model's inputs, and their specs in order."""
    graph = graph_of(model)
    if graph is None:
        raise RuntimeError(
            f"The model '{model.name}' must be built before it is exported. Call `model.build()` with the shape of its "
            "input, or call the model with data."
        )
    named = kind_of(model) is not ModelKind.SUBCLASSED
    specs = []
    for index, tensor in enumerate(graph.inputs):
        shape = list(tensor.shape)
        if batch_size is not None:
            shape[0] = batch_size
        if None in shape:
            raise ValueError(
                f"Every dimension of the input '{tensor.name}' must be known. Received: shape {tuple(shape)}. Give "
                "`batch_size`, or make the model's inputs with a batch size."
            )
        specs.append(tf.TensorSpec(shape, tensor.dtype, tensor.name if named else f"input_{index + 1}"))
    return keras_graphs.graph_structures(graph)[0], specs


def _jax_predict_step(model: Any, structure: Any, signature: Sequence[tf.TensorSpec]) -> Callable[..., list[tf.Tensor]]:
    """Wraps the `call` of a built Keras-on-JAX model, with `training=False`, as a function of TensorFlow tensors.

    The model's weights are variables of TensorFlow's in it, with the values that they have now.

    Args:
        model: the model.
        structure: of its inputs.
        signature: its inputs' tensors, in order.

    Returns:
        A function from the tensors of the inputs to those of the outputs.
    """
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    weights = [tf.Variable(np.asarray(variable.value), trainable=False) for variable in variables]

    def outputs(*arrays: Any) -> list[Any]:
        values, inputs = arrays[: len(variables)], arrays[len(variables) :]
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return list(keras.tree.flatten(model(keras.tree.pack_sequence_as(structure, inputs), training=False)))

    elements = [jax.ShapeDtypeStruct(tuple(spec.shape), spec.dtype.as_numpy_dtype) for spec in signature]
    converted = tensorflow_function(outputs, [*(variable.value for variable in variables), *elements])

    def step(*tensors: tf.Tensor) -> list[tf.Tensor]:
        return converted(*weights, *tensors)

    return step
