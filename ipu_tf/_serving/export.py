"""Exports a step as a SavedModel for stock TensorFlow, with the compiled program beside it.

<export_dir>/saved_model.pb                  preprocessing ─► step, its variables frozen ─► postprocessing
<export_dir>/assets/application_*.ipu_exec   the step as a loop on the device, for `embedded_runtime`
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import jax
import tensorflow as tf

from ipu_tf._serving.export_checks import Specs, Step, check_compatible
from ipu_tf._strategy.run import skip_device_compilation
from ipu_tf.device.files.executable_file import SUFFIX
from ipu_tf.ipu_infeed_queue import IPUInfeedQueue
from ipu_tf.ipu_outfeed_queue import IPUOutfeedQueue
from ipu_tf.lowering.programs.exported_function import exported_function
from ipu_tf.lowering.programs.served_step import served_step
from ipu_tf.ops.application_compile_op import compile_one_replica
from ipu_tf.ops.embedded_runtime import embedded_runtime_call, embedded_runtime_start

# What is served has no gradients; those of packed weights' products capture tensors that cannot be saved.
_WITHOUT_GRADIENTS = tf.saved_model.SaveOptions(experimental_custom_gradients=False)


@dataclasses.dataclass(frozen=True)
class ExportRequest:
    """Function, signature and variables to export.

    Attributes:
        step: what the device computes for one element.
        step_signature: the element's tensors.
        device_loop: makes the device's program from a queue of elements and one for the results.
        signature: the inputs of the exported function.
        preprocessing: what the host makes of them first.
        postprocessing: what the host makes of the results.
        postprocessing_signature: its inputs.
        output_names: of the results.
    """

    step: Step
    step_signature: Specs
    device_loop: Callable[[IPUInfeedQueue, IPUOutfeedQueue], Any]
    signature: Specs
    preprocessing: Step | None = None
    postprocessing: Step | None = None
    postprocessing_signature: Specs | None = None
    output_names: Any = None


def export(served: ExportRequest, directory: str) -> Any:
    """Writes the SavedModel, and returns its function as one that runs on the device.

    Args:
        served: what to export.
        directory: where to; what is there is removed before it is written.

    Returns:
        A `tf.function` of the same inputs and outputs. It runs the step on the device, by `embedded_runtime`.

    Raises:
        TypeError: for output names that are none.
        ValueError: if the steps, or the names, do not fit each other.
    """
    names = _checked_names(served.output_names)
    name = f"application_{uuid.uuid4()}"
    before = _frozen(served.preprocessing, served.signature)
    after = _frozen(served.postprocessing, served.postprocessing_signature)

    def around(step: Step) -> Any:
        def predict(*inputs: tf.Tensor) -> Any:
            elements = inputs if before is None else _as_list(before(*inputs))
            check_compatible(elements, served.step_signature, "preprocessing_step", "predict_step")
            results = _as_list(step(*elements))
            if after is not None:
                check_compatible(results, served.postprocessing_signature or (), "predict_step", "postprocessing_step")
                results = _as_list(after(*results))
            return _named(results, names)

        return tf.function(predict, input_signature=list(served.signature), autograph=False)

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, name + SUFFIX)
        _compile(served, file)
        module = tf.Module()
        module.executable = tf.saved_model.Asset(file)
        module.predict = around(served_step(served.step, served.step_signature))
        _save(module, directory)
    saved = os.path.join(directory, "assets", name + SUFFIX)

    def on_device(*elements: tf.Tensor) -> list[tf.Tensor]:
        return embedded_runtime_call(elements, embedded_runtime_start(saved, [], name))

    return skip_device_compilation(around(on_device))


def tensorflow_function(
    function: Callable[..., Sequence[Any]], parameters: Sequence[Any]
) -> Callable[..., list[tf.Tensor]]:
    """A JAX function as one op of TensorFlow, which stock TensorFlow runs and the device does.

    It is traced in JAX's own precision, 32 bits, whatever the device's.

    Args:
        function: takes arrays and gives a list of arrays; traceable by JAX.
        parameters: what it takes, in order: anything with a `shape` and a `dtype`.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> doubled = tensorflow_function(lambda x: [2 * x], [jax.ShapeDtypeStruct((2,), jnp.float32)])
        >>> print(doubled(tf.constant([1.0, 2.0]))[0].numpy())
        [2. 4.]
    """
    with jax.enable_x64(False):
        return exported_function(function, [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in parameters])


def _save(module: Any, directory: str) -> None:
    signature = module.predict.get_concrete_function()  # traces it, and so checks the last of what it is given
    if os.path.isdir(directory):
        shutil.rmtree(directory)
    tf.saved_model.save(module, directory, signature, _WITHOUT_GRADIENTS)


def _compile(served: ExportRequest, file: str) -> None:
    zeros = tuple(tf.zeros(spec.shape, spec.dtype) for spec in served.step_signature)
    infeed = IPUInfeedQueue(tf.data.Dataset.from_tensors(zeros).repeat())
    outfeed = IPUOutfeedQueue()

    def program() -> Any:
        return served.device_loop(infeed, outfeed)

    compile_one_replica(program, file)


def _frozen(step: Step | None, signature: Specs | None) -> Step | None:
    return None if step is None else served_step(step, signature or ())


def _named(results: Sequence[tf.Tensor], names: list[str] | None) -> Any:
    if names is None:
        return list(results)
    if len(names) != len(results):
        raise ValueError(
            "Length of output_names does not match the number of results returned by the predict function. "
            f"Received: {len(names)} names for {len(results)} results."
        )
    return dict(zip(names, results, strict=True))


def _as_list(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _checked_names(names: Any) -> list[str] | None:
    """The names of the outputs; None for `output_0`, `output_1` and so on.

    Raises:
        TypeError: if they are neither a string nor a list of strings.
        ValueError: if two are equal.
    """
    if not names:
        return None
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"output_names must be a string or a list of strings. Received: {names!r}.")
    if len(set(names)) < len(names):
        raise ValueError(f"output_names must differ: each names one result. Received: {names}.")
    return names
