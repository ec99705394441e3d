"""`OptimizerFunctionOutput`: return type of a pipeline's `optimizer_function`: optimizer, loss and arguments."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf.eager.backprop import GradientCaptureContext
from ipu_tf.ipu_outfeed_queue import IPUOutfeedQueue

__all__ = ["OptimizerFunctionOutput", "is_keras_optimizer"]

_NAME = "OptimizerFunctionOutput"


def is_keras_optimizer(opt: Any) -> bool:
    """Returns whether an optimizer is one of Keras's, of any generation."""
    modules = {base.__module__ for base in type(opt).__mro__ if "ptimizer" in base.__name__}
    return any(m.split(".")[0] in ("keras", "tf_keras") or m.startswith("tensorflow.python.keras") for m in modules)


class OptimizerFunctionOutput:
    """Optimizer, loss and optimizer arguments of a pipeline.

    Args:
        opt: a `tf.compat.v1.train.Optimizer` or a Keras optimizer.
        loss: the tensor to minimise. The pipeline scales it where the optimizer scales losses.
        compute_gradients_args: further arguments of a v1 optimizer's `compute_gradients`.
        compute_gradients_kwargs: the same, by name.
        apply_gradients_args: further arguments of `apply_gradients`.
        apply_gradients_kwargs: the same, by name.
        variables: what a Keras optimizer trains.
        tape: a tape that watched what a Keras optimizer trains.
        gradient_capture_context: keeps gradients of `capture_upstream_gradients`.
        captured_gradient_outfeed: a queue for them, one element an update.

    Raises:
        TypeError: for an argument of another type.
        ValueError: for arguments that exclude each other.
    """

    def __init__(
        self,
        opt: Any,
        loss: Any,
        compute_gradients_args: Any = None,
        compute_gradients_kwargs: Any = None,
        apply_gradients_args: Any = None,
        apply_gradients_kwargs: Any = None,
        variables: Any = None,
        tape: Any = None,
        gradient_capture_context: Any = None,
        captured_gradient_outfeed: Any = None,
    ) -> None:
        self._variables: Any = ()
        self._tape: Any = None
        self._gradient_capture_context: Any = None
        self.opt = opt
        self.loss = loss
        self.compute_gradients_args = compute_gradients_args or ()
        self.compute_gradients_kwargs = compute_gradients_kwargs or {}
        self.apply_gradients_args = apply_gradients_args or ()
        self.apply_gradients_kwargs = apply_gradients_kwargs or {}
        self.variables = variables or ()
        self.tape = tape
        self.gradient_capture_context = gradient_capture_context
        self.captured_gradient_outfeed = captured_gradient_outfeed

    @property
    def opt(self) -> Any:
        """The optimizer."""
        return self._opt

    @opt.setter
    def opt(self, value: Any) -> None:
        if not isinstance(value, tf.compat.v1.train.Optimizer) and not is_keras_optimizer(value):
            raise TypeError(f"{_NAME}.opt must be a TensorFlow Optimizer or Keras OptimizerV2 object.")
        self._opt = value

    @property
    def loss(self) -> tf.Tensor:
        """The loss."""
        return self._loss

    @loss.setter
    def loss(self, value: Any) -> None:
        if not isinstance(value, tf.Tensor):
            raise TypeError(f"{_NAME}.loss must be a TensorFlow Tensor object.")
        self._loss = value

    @property
    def compute_gradients_args(self) -> tuple[Any, ...]:
        """Further arguments of `compute_gradients`."""
        return self._compute_gradients_args

    @compute_gradients_args.setter
    def compute_gradients_args(self, value: Any) -> None:
        _check_type(value, tuple, "compute_gradients_args must be a tuple.")
        self._check_v1(value, "compute_gradients_args")
        self._compute_gradients_args = value

    @property
    def compute_gradients_kwargs(self) -> dict[str, Any]:
        """Further arguments of `compute_gradients`, by name."""
        return self._compute_gradients_kwargs

    @compute_gradients_kwargs.setter
    def compute_gradients_kwargs(self, value: Any) -> None:
        _check_type(value, dict, "compute_gradients_kwargs must be a dict.")
        self._check_v1(value, "compute_gradients_kwargs")
        self._compute_gradients_kwargs = value

    @property
    def apply_gradients_args(self) -> tuple[Any, ...]:
        """Further arguments of `apply_gradients`."""
        return self._apply_gradients_args

    @apply_gradients_args.setter
    def apply_gradients_args(self, value: Any) -> None:
        _check_type(value, tuple, "apply_gradients_args must be a tuple.")
        self._apply_gradients_args = value

    @property
    def apply_gradients_kwargs(self) -> dict[str, Any]:
        """Further arguments of `apply_gradients`, by name."""
        return self._apply_gradients_kwargs

    @apply_gradients_kwargs.setter
    def apply_gradients_kwargs(self, value: Any) -> None:
        _check_type(value, dict, "apply_gradients_kwargs must be a dict.")
        self._apply_gradients_kwargs = value

    @property
    def variables(self) -> Any:
        """Variables that a Keras optimizer trains."""
        return self._variables

    @variables.setter
    def variables(self, value: Any) -> None:
        _check_type(value, (tuple, list), "variables must be a tuple or list.")
        self._check_keras(value, "variables")
        if value and self._tape is not None:
            raise ValueError(f"{_NAME}.variables must be empty when {_NAME}.tape is used.")
        self._variables = value

    @property
    def tape(self) -> Any:
        """Gradient tape of the variables that a Keras optimizer trains."""
        return self._tape

    @tape.setter
    def tape(self, value: Any) -> None:
        if value is None:
            self._tape = None
            return
        _check_type(value, tf.GradientTape, "tape must be a GradientTape.")
        self._check_keras(value, "tape")
        if len(self._variables):
            raise ValueError(f"{_NAME}.tape may not be used when {_NAME}.variables is nonempty.")
        if self._gradient_capture_context is not None:
            raise ValueError(f"{_NAME}.tape may not be used when {_NAME}.gradient_capture_context is nonempty.")
        self._tape = value

    @property
    def gradient_capture_context(self) -> Any:
        """Context that captures gradients of `capture_upstream_gradients`."""
        return self._gradient_capture_context

    @gradient_capture_context.setter
    def gradient_capture_context(self, value: Any) -> None:
        if value is not None:
            wanted = "gradient_capture_context must be an ipu.eager.backprop.GradientCollectionContext."
            _check_type(value, GradientCaptureContext, wanted)
            if self._tape is not None:
                raise ValueError(f"{_NAME}.gradient_capture_context may not be used when {_NAME}.tape is nonempty.")
        self._gradient_capture_context = value

    @property
    def captured_gradient_outfeed(self) -> Any:
        """A queue for captured gradients."""
        return self._captured_gradient_outfeed

    @captured_gradient_outfeed.setter
    def captured_gradient_outfeed(self, value: Any) -> None:
        if value is not None:
            _check_type(value, IPUOutfeedQueue, "captured_gradient_outfeed must be an instance of IPUOutfeedQueue.")
        self._captured_gradient_outfeed = value

    def _check_v1(self, value: Any, name: str) -> None:
        if value and is_keras_optimizer(self.opt):
            raise ValueError(f"{_NAME}.{name} may not be used with OptimizerV2 instances.")

    def _check_keras(self, value: Any, name: str) -> None:
        given = value is not None and (not isinstance(value, (tuple, list)) or len(value))
        if given and not is_keras_optimizer(self.opt):
            raise ValueError(f"{_NAME}.{name} may only be used with OptimizerV2.")


def _check_type(value: Any, wanted: type | tuple[type, ...], text: str) -> None:
    if not isinstance(value, wanted):
        raise TypeError(f"{_NAME}.{text}")
