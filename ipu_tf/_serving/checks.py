"""Checks the arguments of exports for serving, and derives input signatures."""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

Step = Callable[..., Any]
Specs = Sequence[tf.TensorSpec]

_SIGNATURES = ("preprocessing_step_signature", "postprocessing_step_signature", "predict_step_signature")


def checked_directory(export_dir: str | os.PathLike[str], purge: bool) -> str:
    """The directory to export to, empty or not there yet.

    Raises:
        ValueError: if it holds anything, unless it may be emptied.
    """
    path = os.fspath(export_dir)
    if os.path.isdir(path) and os.listdir(path):
        if not purge:
            raise ValueError(f'Directory "{path}" is not empty. Please specify an empty directory.')
        shutil.rmtree(path)
    return path


def check_signatures(
    predict_step: Step,
    predict_step_signature: Any,
    input_dataset: Any,
    preprocessing_step: Step | None,
    preprocessing_step_signature: Any,
    postprocessing_step: Step | None,
    postprocessing_step_signature: Any,
) -> None:
    """Checks that each step's input signature is given exactly once; the arguments are those of `export_single_step`.

    Raises:
        TypeError: for a signature or data set that is none.
        ValueError: for signatures that are empty, given twice, or cannot be found.
    """
    first, first_signature = ("predict_step", predict_step_signature)
    if preprocessing_step is not None:
        first, first_signature = ("preprocessing_step", preprocessing_step_signature)
    if first_signature is not None and input_dataset is not None:
        raise ValueError(
            f"Both `{first}_signature` and `input_dataset` cannot be provided. Please pass only one of them."
        )
    if first_signature is None and input_dataset is None:
        _check_has_input_signature(preprocessing_step or predict_step, first, dataset_helps=True)
    if preprocessing_step is not None and predict_step_signature is None:
        _check_has_input_signature(predict_step, "predict_step", dataset_helps=False)
    if input_dataset is not None and not isinstance(input_dataset, tf.data.Dataset):
        raise TypeError(f"`input_dataset` must be a tf.data.Dataset. Received: {type(input_dataset).__name__}.")
    if postprocessing_step is not None and postprocessing_step_signature is None:
        _check_has_input_signature(postprocessing_step, "postprocessing_step", dataset_helps=False)
    signatures = (preprocessing_step_signature, postprocessing_step_signature, predict_step_signature)
    for name, signature in zip(_SIGNATURES, signatures, strict=True):
        if signature is not None:
            _check_signature(name, signature)


def input_signature(
    step: Step, signature: Any = None, dataset: tf.data.Dataset | None = None, given: Sequence[tf.Tensor] = ()
) -> list[tf.TensorSpec]:
    """The specs of a step's inputs, named as its arguments are.

    Args:
        step: the step.
        signature: what its inputs are; by default those of the data set's elements, else its own `input_signature`.
        dataset: whose elements it takes.
        given: tensors that its first arguments always are. They have no place in the result, though `signature` may
            speak of them.

    Raises:
        ValueError: if there are not as many specs as arguments.
    """
    if signature is None and dataset is not None:
        element = dataset.element_spec
        signature = element if isinstance(element, tuple) else (element,)
    elif signature is None:
        signature = step.input_signature  # type: ignore[attr-defined]
    names = list(inspect.signature(step).parameters)[len(given) :]
    specs = list(signature)
    if given and len(specs) == len(names) + len(given):
        specs = specs[len(given) :]
    if len(specs) != len(names):
        raise ValueError(
            f"`{step_name(step)}` must have a spec for each of its arguments {names}. Received: {len(specs)} "
            f"specs, {specs}."
        )
    return [tf.TensorSpec(spec.shape, spec.dtype, name) for spec, name in zip(specs, names, strict=True)]


def checked_names(names: Any) -> list[str] | None:
    """The names of the outputs; None for `output_0`, `output_1` and so on.

    Raises:
        TypeError: if they are neither a string nor a list.
    """
    if not names:
        return None
    if isinstance(names, str):
        return [names]
    if not isinstance(names, list):
        raise TypeError(f"output_names must be a string or a list of strings. Received: {type(names).__name__}.")
    return names


def check_compatible(results: Sequence[Any], specs: Specs, source: str, sink: str) -> None:
    """Checks that one step's results match the inputs of the next one.

    Raises:
        ValueError: if they are not.
    """
    if len(results) != len(specs):
        raise ValueError(
            f"`{source}` must give as many tensors as `{sink}` takes: {len(specs)}. Received: {len(results)}."
        )
    for index, (result, spec) in enumerate(zip(results, specs, strict=True)):
        if not isinstance(result, tf.Tensor):
            raise ValueError(f"`{source}` must give tensors. Received at position {index}: {result!r}.")
        if result.shape != spec.shape or result.dtype != spec.dtype:
            raise ValueError(
                f"Tensor {index} from `{source}` must have the shape {spec.shape} and the dtype {spec.dtype.name}, "
                f"which `{sink}` takes. Received: shape {result.shape}, dtype {result.dtype.name}."
            )


def step_name(step: Step) -> str:
    """Returns the name of a step for messages."""
    return getattr(step, "__name__", type(step).__name__)


def _check_has_input_signature(step: Step, name: str, dataset_helps: bool) -> None:
    """Checks that a step has an input signature of its own."""
    remedy = f"provide `{name}_signature`" + (" or `input_dataset`" if dataset_helps else "")
    if not hasattr(step, "input_signature"):
        raise ValueError(
            f"`input_signature` deduction from given `{name}` is not possible. Please mark it as tf.function with "
            f"`input_signature`, or {remedy}."
        )
    if step.input_signature is None:
        raise ValueError(f"The tf.function `{name}` has no `input_signature`. Please specify it, or {remedy}.")


def _check_signature(name: str, signature: Any) -> None:
    if not isinstance(signature, (tuple, list)):
        raise TypeError(f"`{name}` must be a tuple or list of tf.TensorSpec. Received: {type(signature).__name__}.")
    if not signature:
        raise ValueError(f"`{name}` must be not empty.")
    for index, spec in enumerate(signature):
        if not isinstance(spec, tf.TensorSpec):
            raise TypeError(f"`{name}[{index}]` must be a tf.TensorSpec. Received: {type(spec).__name__}.")
