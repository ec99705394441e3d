"""SGD, Adam and RMSprop on scaled gradients: they unscale the weight update, not the gradients.

Their state is scaled as the gradients that made it were. When the scale of gradients changes, state is rescaled on the
way: moments by the ratio of scales, squares by its square. The arithmetic is done in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops


class ParameterUnscalingOptimizer:
    """Mixin for optimizers on scaled gradients, with variables for the scale of gradients and of state."""

    def build(self: Any, variables: Sequence[Any]) -> None:
        """Creates the variables of the optimizer, and the two scales."""
        super().build(variables)  # type: ignore[misc]
        self.gradient_scale = self.add_variable((), "ones", "float32", name="gradient_scale")
        self.state_scale = self.add_variable((), "ones", "float32", name="state_scale")

    def apply(self: Any, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """Applies gradients that are scaled by `gradient_scale`."""
        super().apply(grads, trainable_variables)  # type: ignore[misc]
        self.assign(self.state_scale, self.gradient_scale)

    def _clip_gradients(self: Any, grads: Sequence[Any]) -> list[Any]:
        """Clips scaled gradients so that the unscaled ones are within the bounds; Keras calls it."""
        if not (self.clipnorm or self.global_clipnorm or self.clipvalue):
            return list(grads)
        scale = ops.convert_to_tensor(self.gradient_scale)
        unscaled = [None if grad is None else _float32(grad) / scale for grad in grads]
        clipped = super()._clip_gradients(unscaled)  # type: ignore[misc]
        return [None if grad is None else grad * scale for grad in clipped]

    def scales(self: Any) -> tuple[Any, Any]:
        """(scale of the gradients, what state made of earlier gradients must be multiplied by), float32 scalars."""
        scale = ops.convert_to_tensor(self.gradient_scale)
        return scale, scale / ops.convert_to_tensor(self.state_scale)

    def assign_all(self: Any, values: Sequence[tuple[Any, Any]]) -> None:
        """Assigns (variable, float32 value) pairs, each value cast to the variable's dtype."""
        for variable, value in values:
            self.assign(variable, ops.cast(value, variable.dtype))


def _float32(value: Any) -> Any:
    return ops.cast(value, "float32")


class UnscalingSGD(ParameterUnscalingOptimizer, keras.optimizers.SGD):
    """Gradient descent with momentum, on scaled gradients."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable by its scaled gradient."""
        scale, rescale = self.scales()
        step = -_float32(learning_rate) * _float32(gradient)
        if self.momentum:
            momentum = self.momentums[self._get_variable_index(variable)]
            step = step + self.momentum * rescale * _float32(momentum)
            self.assign_all([(momentum, step)])
        self.assign_all([(variable, _float32(variable) + step / scale)])


class UnscalingAdam(ParameterUnscalingOptimizer, keras.optimizers.Adam):
    """Adam on scaled gradients."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable by its scaled gradient."""
        scale, rescale = self.scales()
        place = self._get_variable_index(variable)
        mean, square = self._momentums[place], self._velocities[place]
        gradient, step = _float32(gradient), _float32(self.iterations + 1)
        new_mean = self.beta_1 * rescale * _float32(mean) + (1 - self.beta_1) * gradient
        new_square = self.beta_2 * rescale**2 * _float32(square) + (1 - self.beta_2) * gradient**2
        correction = ops.sqrt(1 - ops.power(_float32(self.beta_2), step)) / (1 - ops.power(_float32(self.beta_1), step))
        change = _float32(learning_rate) * correction * new_mean / (ops.sqrt(new_square) + self.epsilon * scale)
        self.assign_all([(mean, new_mean), (square, new_square), (variable, _float32(variable) - change)])


class UnscalingRMSprop(ParameterUnscalingOptimizer, keras.optimizers.RMSprop):
    """RMSprop on scaled gradients."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable by its scaled gradient."""
        scale, rescale = self.scales()
        place = self._get_variable_index(variable)
        square, gradient = self._velocities[place], _float32(gradient)
        new_square = self.rho * rescale**2 * _float32(square) + (1 - self.rho) * gradient**2
        values, variance = [(square, new_square)], new_square
        if self.centered:
            mean = self._average_gradients[place]
            new_mean = self.rho * rescale * _float32(mean) + (1 - self.rho) * gradient
            values, variance = [*values, (mean, new_mean)], new_square - new_mean**2
        change = _float32(learning_rate) * gradient / ops.sqrt(variance + self.epsilon * scale**2)
        if self.momentum > 0:
            momentum = self._momentums[place]
            change = self.momentum * _float32(momentum) + change
            values = [*values, (momentum, change)]
        self.assign_all([*values, (variable, _float32(variable) - change)])
