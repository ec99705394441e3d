"""Checks the arguments of exports for serving, and derives input signatures."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

Step = Callable[..., Any]
Specs = Sequence[tf.TensorSpec]

_SIGNATURES = ("preprocessing_step_signature", "postprocessing_step_signature", "predict_step_signature")


def checked_directory(export_dir: str | os.PathLike[str], purge: bool) -> str:
    """The directory to export to: empty, not there yet, or to be emptied, which `export` does once all is checked.

    Raises:
        ValueError: if it holds anything, unless it may be emptied.
    """
    path = os.fspath(export_dir)
    if os.path.isdir(path) and os.listdir(path) and not purge:
        raise ValueError(
            f'Directory "{path}" is not empty. Please specify an empty directory. Or pass purge_export_dir=True.'
        )
    return path


@dataclasses.dataclass(frozen=True)
class ServedSteps:
    """Steps of an exported function, as the arguments of `export_single_step` give them.

    Attributes:
        predict_step: what the device computes.
        predict_step_signature: a spec for each of its arguments, or None.
        input_dataset: whose elements are like the inputs of the exported function, or None.
        preprocessing_step: what the host makes of the inputs first, or None.
        preprocessing_step_signature: a spec for each of its arguments, or None.
        postprocessing_step: what the host makes of the results, or None.
        postprocessing_step_signature: a spec for each of its arguments, or None.
    """

    predict_step: Step
    predict_step_signature: Any
    input_dataset: Any
    preprocessing_step: Step | None
    preprocessing_step_signature: Any
    postprocessing_step: Step | None
    postprocessing_step_signature: Any

    def check(self) -> None:
        """Checks that each step's input signature is given exactly once.

        Raises:
            TypeError: for a signature or data set that is none.
            ValueError: for signatures that are empty, given twice, or cannot be found.
        """
        self._check_first_step()
        if self.preprocessing_step is not None and self.predict_step_signature is None:
            _check_has_input_signature(self.predict_step, "predict_step", dataset_helps=False)
        if self.input_dataset is not None and not isinstance(self.input_dataset, tf.data.Dataset):
            received = type(self.input_dataset).__name__
            raise TypeError(f"`input_dataset` must be a tf.data.Dataset. Received: {received}.")
        if self.postprocessing_step is not None and self.postprocessing_step_signature is None:
            _check_has_input_signature(self.postprocessing_step, "postprocessing_step", dataset_helps=False)
        for name in _SIGNATURES:
            if getattr(self, name) is not None:
                _check_signature(name, getattr(self, name))

    def _check_first_step(self) -> None:
        """Checks that the inputs of the exported function are given once."""
        first, signature = "predict_step", self.predict_step_signature
        if self.preprocessing_step is not None:
            first, signature = "preprocessing_step", self.preprocessing_step_signature
        if signature is not None and self.input_dataset is not None:
            raise ValueError(
                f"Both `{first}_signature` and `input_dataset` cannot be provided. Please pass only one of them."
            )
        if signature is None and self.input_dataset is None:
            _check_has_input_signature(self.preprocessing_step or self.predict_step, first, dataset_helps=True)

    def signatures(self, given: Sequence[tf.Tensor] = ()) -> tuple[list[tf.TensorSpec], list[tf.TensorSpec]]:
        """Returns the signatures of the exported function and of `predict_step`.

        Args:
            given: what the first arguments of `predict_step` always are.
        """
        step, signature = self.predict_step, self.predict_step_signature
        if self.preprocessing_step is None:
            taken = input_signature(step, signature, self.input_dataset, given)
            return taken, taken
        first = input_signature(self.preprocessing_step, self.preprocessing_step_signature, self.input_dataset)
        return first, input_signature(step, signature, None, given)

    def postprocessing_signature(self) -> list[tf.TensorSpec] | None:
        """Returns the signature of `postprocessing_step`, if there is one."""
        step = self.postprocessing_step
        return None if step is None else input_signature(step, self.postprocessing_step_signature)


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
        TypeError: if one is not that of a tensor.
        ValueError: if there are not as many specs as arguments.
    """
    source = "a signature"
    if signature is None and dataset is not None:
        source, element = "elements of `input_dataset`", dataset.element_spec
        signature = element if isinstance(element, tuple) else (element,)
    elif signature is None:
        signature = step.input_signature  # type: ignore[attr-defined]
    names = list(inspect.signature(step).parameters)[len(given) :]
    specs = list(signature)
    if given and len(specs) == len(names) + len(given):
        specs = specs[len(given) :]
    if not all(isinstance(spec, tf.TensorSpec) for spec in specs):
        raise TypeError(
            f"`{step_name(step)}` must have a tf.TensorSpec for each of its arguments {names}. Received: {source} of "
            f"{specs}. Make them dense tensors in a tuple, such as by `dataset.map(lambda x: (x['a'], x['b']))`."
        )
    if len(specs) != len(names):
        raise ValueError(
            f"`{step_name(step)}` must have a spec for each of its arguments {names}. Received: {len(specs)} "
            f"specs, {specs}."
        )
    return [tf.TensorSpec(spec.shape, spec.dtype, name) for spec, name in zip(specs, names, strict=True)]


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
