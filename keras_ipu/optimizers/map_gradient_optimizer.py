"""`MapGradientOptimizer`: maps gradients before the wrapped optimizer applies them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from keras_ipu.optimizers.ipu_optimizer import CapturedGrads, IpuOptimizer


@keras.saving.register_keras_serializable(package="keras_ipu")
class MapGradientOptimizer(IpuOptimizer):
    """Optimizer wrapper that maps gradients when they are computed; of several wrappers the innermost maps first.

    Args:
        wrapped_optimizer: the Keras optimizer to wrap.
        gradient_mapping_function: from gradient and variable to gradient.
        name: of this optimizer.

    Example:
        >>> import keras
        >>> decay = lambda gradient, variable: gradient + 0.01 * variable
        >>> optimizer = MapGradientOptimizer(keras.optimizers.SGD(0.1), decay)
    """

    def __init__(
        self,
        wrapped_optimizer: Any,
        gradient_mapping_function: Callable[[Any, Any], Any],
        name: str = "MapGradientOptimizer",
    ) -> None:
        super().__init__(wrapped_optimizer, name)
        self.gradient_mapping_function = gradient_mapping_function

    def transform_gradients(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        """The gradients, mapped after the wrapped optimizers mapped them."""
        return self._mapped(super().transform_gradients(grads, variables), variables)

    def _mapped(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        return [
            None if grad is None else self.gradient_mapping_function(grad, variable)
            for grad, variable in zip(grads, variables, strict=True)
        ]

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes. A lambda can only be read back in unsafe mode."""
        function = keras.saving.serialize_keras_object(self.gradient_mapping_function)
        return {**super().get_config(), "gradient_mapping_function": function}


@keras.saving.register_keras_serializable(package="keras_ipu")
class MapGradientOptimizerInvertedChaining(MapGradientOptimizer):
    """Optimizer wrapper that maps gradients when they are applied; of several wrappers the outermost maps first.

    Args:
        wrapped_optimizer: the Keras optimizer to wrap.
        gradient_mapping_function: from gradient and variable to gradient.
        name: of this optimizer.
    """

    def __init__(
        self,
        wrapped_optimizer: Any,
        gradient_mapping_function: Callable[[Any, Any], Any],
        name: str = "MapGradientOptimizerInvertedChaining",
    ) -> None:
        super().__init__(wrapped_optimizer, gradient_mapping_function, name)

    def transform_gradients(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        """Transforms gradients by the wrapped optimizers; this one maps them in `update`."""
        return IpuOptimizer.transform_gradients(self, grads, variables)

    def update(self, grads: list[Any], variables: list[Any], captured_grads: CapturedGrads = None) -> None:
        """Maps the gradients and passes them to the wrapped optimizer."""
        super().update(self._mapped(grads, variables), variables, captured_grads)
