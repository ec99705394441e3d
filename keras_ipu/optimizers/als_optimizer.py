"""`ALSOptimizer`: automatic loss scaling that keeps float16 gradients within range."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_ipu.optimizers.als_settings import ALSDefaults, ALSSettings, checked_settings, read_only
from keras_ipu.optimizers.als_state import ALSState, advanced, observed, saturated
from keras_ipu.optimizers.inner_optimizer_calls import do_not_convert
from keras_ipu.optimizers.ipu_optimizer import CapturedGrads, IpuOptimizer
from keras_ipu.optimizers.parameter_unscaling import ParameterUnscalingOptimizer

_WRONG_WRAPPER = (
    "ALSOptimizer has been used to wrap an instance of _ParameterUnscalingOptimizer, but is not itself an instance of "
    "_ParameterUnscalingALSOptimizer."
)


@keras.saving.register_keras_serializable(package="keras_ipu")
class ALSOptimizer(ALSSettings, IpuOptimizer):
    """Optimizer wrapper that scales the loss by a factor adapted to the range of float16 gradients.

    The loss has to be scaled before gradients are taken: `fit` does it; in a loop of your own use `get_gradients`,
    `minimize` or `get_scaled_loss`. `apply_gradients` takes scaled gradients. An IPU never makes an infinite float16:
    here, infinite float16 gradients are taken for the largest float16, so that an overflow does not end the training.
    A model of the policy mixed_float16 has no `LossScaleOptimizer` of Keras's around it.

    Args:
        opt: the Keras optimizer to wrap.
        initial_loss_scaling_factor: the first factor, a power of two.
        update_frequency: after how many applications the next one may change the factor.
        increase_factor: what the factor is multiplied by, or divided by on overflow; a power of two.
        max_loss_scaling_factor: the factor stays below it; a power of two.
        accumulate_statistics_over_update_period: whether all gradients since the last change count, or only those of
            the application that changes the factor.
        ratio_threshold: the share of overflowed float16 gradients above which the factor decreases.
        captured_grads_only: whether only gradients captured by layers count.
        lpf_alpha: how much of the new statistics a low pass filter holds back: 0 none, 1 all.
        histogram_bin_edge: the magnitude from which a gradient counts as overflowed.
        name: of this optimizer.

    Raises:
        ValueError: for settings out of range.

    Example:
        >>> import keras
        >>> optimizer = ALSOptimizer(keras.optimizers.SGD(0.1), initial_loss_scaling_factor=8)
        >>> float(optimizer.loss_scaling_factor)
        8.0
    """

    def __init__(
        self,
        opt: Any,
        initial_loss_scaling_factor: float = ALSDefaults.initial_loss_scaling_factor,
        update_frequency: int = ALSDefaults.update_frequency,
        increase_factor: float = ALSDefaults.increase_factor,
        max_loss_scaling_factor: float = ALSDefaults.max_loss_scaling_factor,
        accumulate_statistics_over_update_period: bool = ALSDefaults.accumulate_statistics_over_update_period,
        ratio_threshold: float = ALSDefaults.ratio_threshold,
        captured_grads_only: bool = ALSDefaults.captured_grads_only,
        lpf_alpha: float = ALSDefaults.lpf_alpha,
        histogram_bin_edge: float = ALSDefaults.histogram_bin_edge,
        name: str = "ALSOptimizer",
    ) -> None:
        super().__init__(opt, name)
        self._check_inner()
        settings = ALSDefaults(
            initial_loss_scaling_factor,
            update_frequency,
            increase_factor,
            max_loss_scaling_factor,
            accumulate_statistics_over_update_period,
            ratio_threshold,
            captured_grads_only,
            lpf_alpha,
            histogram_bin_edge,
        )
        self.settings = checked_settings(settings)
        first = keras.initializers.Constant(float(initial_loss_scaling_factor))
        self._histogram = self.add_variable((2,), "zeros", "float32", name="gradient_histogram")
        self._counter = self.add_variable((), "zeros", "int32", name="lsf_update_counter")
        self._factor = self.add_variable((), first, "float32", name="loss_scaling_factor")
        self._previous = self.add_variable((), first, "float32", name="prev_loss_scaling_factor")

    def _check_inner(self) -> None:
        if isinstance(self.inner_optimizer, ParameterUnscalingOptimizer):
            raise ValueError(_WRONG_WRAPPER)

    @do_not_convert
    def get_scaled_loss(self, loss: Any) -> Any:
        """A loss times the loss scaling factor, in the dtype of the loss."""
        loss = ops.convert_to_tensor(loss)
        return loss * ops.cast(self._factor, loss.dtype)

    def scale_loss(self, loss: Any) -> Any:
        """Scales the loss; Keras's training step calls it."""
        return self.get_scaled_loss(self.inner_optimizer.scale_loss(loss))

    @do_not_convert
    def get_gradients(self, loss: Any, params: Sequence[Any]) -> list[Any]:
        """The gradients of the scaled loss, with Keras's TensorFlow backend and inside a `tf.function`.

        Args:
            loss: a tensor.
            params: variables.

        Raises:
            NotImplementedError: if Keras runs on another backend.
        """
        tf = _tensorflow("get_gradients")
        variables = [each.value if isinstance(each, keras.Variable) else each for each in params]
        return list(tf.gradients(self.get_scaled_loss(loss), variables))

    @do_not_convert
    def minimize(self, loss: Any, var_list: Sequence[Any], tape: Any = None) -> Any:
        """Computes the gradients of the scaled loss and applies them, with Keras's TensorFlow backend.

        Args:
            loss: a tensor, with the tape that recorded it, or a function that gives one.
            var_list: the variables to update.
            tape: a `tf.GradientTape`; needed with a tensor.

        Raises:
            ValueError: for a tensor without a tape.
            NotImplementedError: if Keras runs on another backend.
        """
        tf = _tensorflow("minimize")
        if not callable(loss) and tape is None:
            raise ValueError("`tape` is required when a `Tensor` loss is passed. Received: no tape.")
        tape = tf.GradientTape() if tape is None else tape
        with tape:
            scaled = self.get_scaled_loss(loss() if callable(loss) else loss)
        grads = tape.gradient(scaled, list(var_list))
        return self.apply_gradients(list(zip(grads, var_list, strict=True)))

    def update(self, grads: list[Any], variables: list[Any], captured_grads: CapturedGrads = None) -> None:
        """Collects statistics of scaled gradients, unscales and applies them, and adapts the factor."""
        self.observe(grads, captured_grads)
        self.apply_unscaled(self.unscaled(grads), variables)

    def observe(self, grads: Sequence[Any], captured_grads: CapturedGrads = None) -> None:
        """Updates the histogram of float16 gradients."""
        self._write(observed(self._read(), self.settings, grads, captured_grads))

    def unscaled(self, grads: Sequence[Any]) -> list[Any]:
        """Gradients divided by the factor. Infinite float16 ones count as 65504, the largest float16."""
        return [None if grad is None else _divided(grad, self._factor) for grad in saturated(grads)]

    def apply_unscaled(self, grads: list[Any], variables: list[Any]) -> None:
        """Applies unscaled gradients, and adapts the factor."""
        self._write(advanced(self._read(), self.settings))
        super().update(grads, variables)

    def reset(self) -> None:
        """Resets the statistics and the factor to their initial values."""
        first = ops.cast(self.initial_loss_scaling_factor, "float32")
        self._write(ALSState(ops.zeros((2,), "float32"), ops.cast(0, "int32"), first, first))

    @property
    def supports_captured_grads(self) -> bool:
        """Returns whether `apply_gradients` makes use of captured gradients: yes."""
        return True

    @property
    def histogram(self) -> Any:
        """float32 [2]: float16 gradients below `histogram_bin_edge` since the last change, and those that are not."""
        return ops.convert_to_tensor(self._histogram)

    @histogram.setter
    def histogram(self, value: Any) -> None:
        raise read_only("histogram")

    @property
    def normalized_histogram(self) -> Any:
        """`histogram` divided by its sum; zeros if it is empty."""
        total = ops.sum(self.histogram)
        return self.histogram / ops.where(total > 0.0, total, 1.0)

    @normalized_histogram.setter
    def normalized_histogram(self, value: Any) -> None:
        raise read_only("normalized_histogram")

    @property
    def loss_scaling_factor(self) -> Any:
        """The factor that losses are multiplied by, a float32 scalar."""
        return ops.convert_to_tensor(self._factor)

    @loss_scaling_factor.setter
    def loss_scaling_factor(self, value: Any) -> None:
        raise read_only("loss_scaling_factor")

    @property
    def previous_loss_scaling_factor(self) -> Any:
        """The factor before its last change, a float32 scalar."""
        return ops.convert_to_tensor(self._previous)

    @previous_loss_scaling_factor.setter
    def previous_loss_scaling_factor(self, value: Any) -> None:
        raise read_only("previous_loss_scaling_factor")

    @property
    def update_counter(self) -> Any:
        """Applications since a change was last due, an int32 scalar."""
        return ops.convert_to_tensor(self._counter)

    @update_counter.setter
    def update_counter(self, value: Any) -> None:
        raise read_only("update_counter")

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        return {**super().get_config(), **dataclasses.asdict(self.settings)}

    def _read(self) -> ALSState:
        variables = (self._histogram, self._counter, self._factor, self._previous)
        return ALSState(*(ops.convert_to_tensor(variable) for variable in variables))

    def _write(self, state: ALSState) -> None:
        self.assign(self._histogram, state.histogram)
        self.assign(self._counter, state.counter)
        self.assign(self._factor, state.factor)
        self.assign(self._previous, state.previous)


def _tensorflow(method: str) -> Any:
    """Returns the TensorFlow module, for methods that differentiate with it."""
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise NotImplementedError(
            f"`ALSOptimizer.{method}` differentiates with TensorFlow. Received: Keras's {backend} backend. Use `fit`, "
            f"or differentiate `optimizer.get_scaled_loss(loss)` with {backend}, and give the gradients to "
            "`optimizer.stateless_apply`; or set KERAS_BACKEND=tensorflow."
        )
    import tensorflow

    return tensorflow


def _divided(grad: Any, factor: Any) -> Any:
    factor = ops.convert_to_tensor(factor)
    return grad / ops.cast(factor, grad.dtype)
