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
from keras_ipu.saving.served_generation import served_generation
from keras_ipu.stock import graphs as keras_graphs
from keras_ipu.training.common.running_streams import wait_for_streams


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
        max_length: int | tuple[int, int] | None = None,
        stop_token_ids: Sequence[int] | None = None,
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
            max_length: exports `generate` of a language model of KerasHub's instead, for so many tokens, given and
                generated ones together; of an encoder and a decoder a pair, or one number for both. Inputs:
                `token_ids` and `padding_mask`, int32 `[batch_size, max_length]`, and `seed`, int32 `[2]`, for samplers
                that draw; for an encoder and a decoder `encoder_token_ids` and so on. Results: `token_ids` and
                `padding_mask`. `batch_size` is 1 by default.
            stop_token_ids: with `max_length`: tokens at which a text ends; None for none.

        Returns:
            The exported function as a `tf.function` that runs the model on the device; gives a list of tensors, or a
            dictionary by `output_names`.

        Raises:
            RuntimeError: for a model that is not built.
            ValueError: if the batch size is not known, the directory is not empty, or steps or names do not fit.
            TypeError: for signatures or names that are none, and `max_length` for another model.
        """
        wait_for_streams(self)
        directory = checked_directory(export_dir, purge_export_dir)
        if max_length is None:
            _check_no_stops(stop_token_ids)
            predict_step, signature = _predict_step(self, None if batch_size is None else int(batch_size))
        else:
            generation = served_generation(self, batch_size, max_length, stop_token_ids)
            predict_step, signature = _traced(self, generation, generation.signature), generation.signature
            output_names = output_names or (None if postprocessing_step else generation.output_names)
        before, before_signature = preprocessing_step, preprocessing_step_signature
        after, after_signature = postprocessing_step, postprocessing_step_signature
        steps = ServedSteps(predict_step, signature, None, before, before_signature, after, after_signature)
        steps.check()
        request = ExportRequest(
            predict_step,
            signature,
            step_loop(predict_step, int(self.steps_per_execution)),  # type: ignore[attr-defined]
            signature if before is None else input_signature(before, before_signature),
            before,
            after,
            steps.postprocessing_signature(),
            output_names,
        )
        return export(request, directory)


def _check_no_stops(stop_token_ids: Any) -> None:
    if stop_token_ids is not None:
        raise ValueError(
            "`stop_token_ids` is for `generate`, which is exported if `max_length` is given. Received: no `max_length`."
        )


def _predict_step(model: Any, batch_size: int | None) -> tuple[Step, list[tf.TensorSpec]]:
    """Returns a function from the flat tensors of a model's inputs to those of its outputs, and their specs."""
    structure, signature = _inputs(model, batch_size)

    def predict_step(*tensors: Any) -> list[Any]:
        inputs = keras.tree.pack_sequence_as(structure, list(tensors))
        return list(keras.tree.flatten(model(inputs, training=False)))

    return _traced(model, predict_step, signature), signature


def _traced(model: Any, step: Step, signature: Sequence[tf.TensorSpec]) -> Step:
    """Returns a function of Keras tensors as one of TensorFlow's."""
    return _jax_step(model, step, signature) if keras.backend.backend() == "jax" else step


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


def _jax_step(model: Any, step: Step, signature: Sequence[tf.TensorSpec]) -> Callable[..., list[tf.Tensor]]:
    """Wraps a function of a built Keras-on-JAX model as a function of TensorFlow tensors.

    The model's weights are variables of TensorFlow's in it, with the values that they have now.

    Args:
        model: the model.
        step: takes arrays and gives a list of them.
        signature: what it takes, in order.

    Returns:
        A function from tensors to tensors.
    """
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    weights = [tf.Variable(np.asarray(variable.value), trainable=False) for variable in variables]

    def outputs(*arrays: Any) -> list[Any]:
        values, inputs = arrays[: len(variables)], arrays[len(variables) :]
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return list(step(*inputs))

    elements = [jax.ShapeDtypeStruct(tuple(spec.shape), spec.dtype.as_numpy_dtype) for spec in signature]
    converted = tensorflow_function(outputs, [*(variable.value for variable in variables), *elements])

    def traced(*tensors: tf.Tensor) -> list[tf.Tensor]:
        return converted(*weights, *tensors)

    return traced
