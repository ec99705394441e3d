"""Exports models as SavedModels for TensorFlow Serving, with the device's program beside them.

The way of a request:

    inputs ──► preprocessing_step ──► predict_step ──► postprocessing_step ──► results
                  on the host          on the device         on the host
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf import loops
from ipu_tf._serving.export import ExportRequest, export
from ipu_tf._serving.export_checks import ServedSteps, Specs, Step, checked_directory
from ipu_tf.ops.pipelining_ops import PipelineSchedule, PipelineStageOptions, pipeline


def export_single_step(
    predict_step: Step,
    export_dir: str | os.PathLike[str],
    iterations: int,
    predict_step_signature: Specs | None = None,
    input_dataset: tf.data.Dataset | None = None,
    output_names: str | list[str] | None = None,
    preprocessing_step: Step | None = None,
    preprocessing_step_signature: Specs | None = None,
    postprocessing_step: Step | None = None,
    postprocessing_step_signature: Specs | None = None,
    purge_export_dir: bool = False,
) -> Any:
    """Exports a function that makes results of one element.

    The inputs of each step are given by its signature, by the `input_signature` of the `tf.function` that it is, or,
    for the first step, by the data set. Variables are frozen.

    Args:
        predict_step: what the device computes.
        export_dir: where to write the SavedModel; empty, or not there yet.
        iterations: how many elements the device's program takes before it starts anew.
        predict_step_signature: a `tf.TensorSpec` for each argument of `predict_step`.
        input_dataset: whose elements are like the inputs of the exported function.
        output_names: of the results; by default `output_0`, `output_1` and so on.
        preprocessing_step: what the host makes of the inputs first.
        preprocessing_step_signature: a `tf.TensorSpec` for each of its arguments.
        postprocessing_step: what the host makes of the results.
        postprocessing_step_signature: a `tf.TensorSpec` for each of its arguments.
        purge_export_dir: whether a directory that is not empty is emptied.

    Returns:
        The exported function as a `tf.function` that runs `predict_step` on the device; gives a list of tensors, or a
        dictionary by `output_names`.

    Raises:
        TypeError: for a signature, data set or names that are none.
        ValueError: for a directory that is not empty, signatures that cannot be found, are empty or given twice, and
            steps or names that do not fit each other.

    Example:
        >>> import tempfile
        >>> import tensorflow as tf
        >>> import ipu_tf as ipu
        >>> config = ipu.config.IPUConfig()
        >>> config.auto_select_ipus = 1
        >>> config.configure_ipu_system()
        >>> specs = [tf.TensorSpec([2], tf.float32)]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     double = ipu.serving.export_single_step(lambda x: 2 * x, folder, 4, specs)
        ...     print(double(tf.constant([1.0, 2.0]))[0].numpy())
        [2. 4.]
    """
    directory = checked_directory(export_dir, purge_export_dir)
    steps = ServedSteps(
        predict_step,
        predict_step_signature,
        input_dataset,
        preprocessing_step,
        preprocessing_step_signature,
        postprocessing_step,
        postprocessing_step_signature,
    )
    steps.check()
    loop = step_loop(tf.function(predict_step), iterations)
    return export(_request(steps, predict_step, loop, output_names), directory)


def export_pipeline(
    computational_stages: Sequence[Step],
    export_dir: str | os.PathLike[str],
    iterations: int,
    inputs: Sequence[Any] | None = None,
    device_mapping: Sequence[int] | None = None,
    pipeline_schedule: PipelineSchedule | None = None,
    poplar_options: Sequence[PipelineStageOptions] | None = None,
    name: str | None = None,
    predict_step_signature: Specs | None = None,
    input_dataset: tf.data.Dataset | None = None,
    output_names: str | list[str] | None = None,
    preprocessing_step: Step | None = None,
    preprocessing_step_signature: Specs | None = None,
    postprocessing_step: Step | None = None,
    postprocessing_step_signature: Specs | None = None,
    purge_export_dir: bool = False,
) -> Any:
    """Exports a pipeline of stages. The first stage is the `predict_step` that signatures speak of.

    Args:
        computational_stages: functions; each takes what the one before gives.
        export_dir: as for `export_single_step`.
        iterations: how many elements an execution of the pipeline takes.
        inputs: what the first arguments of the first stage always are.
        device_mapping: for each stage the IPU it is on; by default stage i on IPU i.
        pipeline_schedule: by default Grouped.
        poplar_options: recorded, without effect.
        name: of the pipeline.
        predict_step_signature: a `tf.TensorSpec` for each argument of the first stage; those of `inputs` may be left
            out.
        input_dataset: as for `export_single_step`, as are all the others.
        output_names: see there.
        preprocessing_step: see there.
        preprocessing_step_signature: see there.
        postprocessing_step: see there.
        postprocessing_step_signature: see there.
        purge_export_dir: see there.

    Returns:
        As `export_single_step`.

    Raises:
        TypeError, ValueError: as `export_single_step` and `pipelining_ops.pipeline` do.
    """
    directory = checked_directory(export_dir, purge_export_dir)
    steps = ServedSteps(
        computational_stages[0],
        predict_step_signature,
        input_dataset,
        preprocessing_step,
        preprocessing_step_signature,
        postprocessing_step,
        postprocessing_step_signature,
    )
    steps.check()
    given = [tf.convert_to_tensor(value) for value in inputs or ()]
    loop = functools.partial(
        _pipeline_loop,
        computational_stages=computational_stages,
        gradient_accumulation_count=iterations,
        inputs=inputs,
        device_mapping=device_mapping,
        pipeline_schedule=pipeline_schedule,
        forward_propagation_stages_poplar_options=poplar_options,
        name=name,
    )
    return export(_request(steps, _composed(computational_stages, given), loop, output_names, given), directory)


def export_keras(
    model: Any,
    export_dir: str | os.PathLike[str],
    batch_size: int | None = None,
    output_names: str | list[str] | None = None,
    preprocessing_step: Step | None = None,
    preprocessing_step_signature: Specs | None = None,
    postprocessing_step: Step | None = None,
    postprocessing_step_signature: Specs | None = None,
    purge_export_dir: bool = False,
) -> Any:
    """Exports a Keras model; the same as the model's own `export_for_ipu_serving`.

    Args:
        model: a built model, made in the scope of an `IPUStrategy`.
        export_dir: as for `export_single_step`.
        batch_size: of the exported model; by default the one that the model was built with.
        output_names: as for `export_single_step`, as are all the others.
        preprocessing_step: see there.
        preprocessing_step_signature: see there.
        postprocessing_step: see there.
        postprocessing_step_signature: see there.
        purge_export_dir: see there.

    Returns:
        As `export_single_step`.

    Raises:
        TypeError, ValueError: as `export_single_step` does; ValueError also for a model that was made outside of a
            strategy, or whose batch size is not known.
    """
    if not hasattr(model, "export_for_ipu_serving"):
        raise ValueError(
            "Provided model was not created inside an IPU strategy, so it does not contain IPU-specific functions. "
            "Please wrap its creation inside an IPU strategy."
        )
    return model.export_for_ipu_serving(
        export_dir,
        batch_size,
        output_names,
        preprocessing_step,
        preprocessing_step_signature,
        postprocessing_step,
        postprocessing_step_signature,
        purge_export_dir,
    )


def step_loop(step: Step, iterations: int) -> Callable[[Any, Any], Any]:
    """The device's program for a step: `iterations` times, an element in and one of results out."""

    def device_loop(infeed: Any, outfeed: Any) -> Any:
        return loops.repeat(iterations, lambda *element: outfeed.enqueue(step(*element)), [], infeed)

    return device_loop


def _pipeline_loop(infeed: Any, outfeed: Any, **arguments: Any) -> tf.Operation:
    """The device's program for the stages of a pipeline."""
    return pipeline(infeed_queue=infeed, outfeed_queue=outfeed, **arguments)


def _request(
    steps: ServedSteps,
    computed: Step,
    loop: Callable[[Any, Any], Any],
    output_names: Any,
    given: Sequence[tf.Tensor] = (),
) -> ExportRequest:
    """Returns what to export.

    Args:
        steps: the steps.
        computed: what the device computes for one element.
        loop: makes the device's program.
        output_names: of the results.
        given: what the first arguments of `steps.predict_step` always are.
    """
    signature, element = steps.signatures(given)
    return ExportRequest(
        computed,
        element,
        loop,
        signature,
        steps.preprocessing_step,
        steps.postprocessing_step,
        steps.postprocessing_signature(),
        output_names,
    )


def _composed(stages: Sequence[Step], given: Sequence[tf.Tensor]) -> Step:
    """A pipeline's stages, one after the other."""

    def step(*element: tf.Tensor) -> Any:
        values: Any = (*given, *element)
        for stage in stages:
            results = stage(*values)
            values = results if isinstance(results, (list, tuple)) else (results,)
        return list(values)

    return step
