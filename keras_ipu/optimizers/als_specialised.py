"""Automatic loss scaling for Adam, SGD and RMSprop, whose state keeps the scale of the gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_ipu.optimizers.als_optimizer import ALSOptimizer
from keras_ipu.optimizers.als_state import saturated
from keras_ipu.optimizers.parameter_unscaling import (
    ParameterUnscalingOptimizer,
    UnscalingAdam,
    UnscalingRMSprop,
    UnscalingSGD,
)


class ParameterUnscalingALSOptimizer(ALSOptimizer):
    """Automatic loss scaling around an optimizer that takes scaled gradients.

    Args:
        opt: one of the optimizers of `parameter_unscaling`.
        kwargs: the arguments of `ALSOptimizer` but `opt`.

    Raises:
        ValueError: for another optimizer.
    """

    #: The arguments of the wrapped optimizer, which are this one's too.
    _INNER: tuple[str, ...] = ()

    def _check_inner(self) -> None:
        if not isinstance(self.inner_optimizer, ParameterUnscalingOptimizer):
            raise ValueError(
                "opt must be an OptimizerV2 specialization derived from _ParameterUnscalingOptimizer. Received: "
                f"{type(self.inner_optimizer).__name__}. Use ALSOptimizer, ALSOptimizerAdam, ALSOptimizerSGD or "
                "ALSOptimizerRMSProp."
            )

    def unscaled(self, grads: Sequence[Any]) -> list[Any]:
        """The gradients, still scaled: the wrapped optimizer scales back what it adds to variables."""
        return saturated(grads)

    def apply_unscaled(self, grads: list[Any], variables: list[Any]) -> None:
        """Applies scaled gradients, and adapts the factor."""
        self.assign(self.inner_optimizer.gradient_scale, ops.convert_to_tensor(self._factor))
        super().apply_unscaled(grads, variables)

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        config = super().get_config()
        inner = config.pop("inner_optimizer")["config"]
        return {**config, **{name: inner[name] for name in self._INNER}}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None) -> Any:
        """Makes an optimizer from the result of `get_config`, without the values of its variables."""
        arguments = dict(config)
        if isinstance(arguments.get("learning_rate"), dict):
            arguments["learning_rate"] = keras.saving.deserialize_keras_object(
                arguments["learning_rate"], custom_objects
            )
        return cls(**arguments)


@keras.saving.register_keras_serializable(package="keras_ipu")
class ALSOptimizerAdam(ParameterUnscalingALSOptimizer):
    """Adam with automatic loss scaling: the weights of `ALSOptimizer(Adam(...))` up to rounding.

    Args:
        learning_rate: a float or a schedule.
        beta_1: decay of the mean of gradients.
        beta_2: decay of the mean of their squares.
        epsilon: added to the denominator.
        name: of this optimizer.
        kwargs: the arguments of `ALSOptimizer` but `opt`.
    """

    _INNER = ("learning_rate", "beta_1", "beta_2", "epsilon")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-07,
        *args: Any,
        name: str = "ALSOptimizerAdam",
        **kwargs: Any,
    ) -> None:
        inner = UnscalingAdam(learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, name="Adam_HypLSFScale")
        super().__init__(inner, *args, **{"name": name, **kwargs})


@keras.saving.register_keras_serializable(package="keras_ipu")
class ALSOptimizerSGD(ParameterUnscalingALSOptimizer):
    """Gradient descent with automatic loss scaling: the weights of `ALSOptimizer(SGD(...))` up to rounding.

    Args:
        learning_rate: a float or a schedule.
        momentum: of the descent.
        name: of this optimizer.
        kwargs: the arguments of `ALSOptimizer` but `opt`.
    """

    _INNER = ("learning_rate", "momentum")

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        *args: Any,
        name: str = "ALSOptimizerSGD",
        **kwargs: Any,
    ) -> None:
        inner = UnscalingSGD(learning_rate, momentum=momentum, name="SGD_HypLSFScale")
        super().__init__(inner, *args, **{"name": name, **kwargs})


@keras.saving.register_keras_serializable(package="keras_ipu")
class ALSOptimizerRMSProp(ParameterUnscalingALSOptimizer):
    """RMSprop with automatic loss scaling: the weights of `ALSOptimizer(RMSprop(...))` up to rounding.

    Args:
        learning_rate: a float or a schedule.
        rho: decay of the mean of squares.
        momentum: of the descent.
        epsilon: added to the variance.
        centered: whether the variance or the mean of squares divides.
        name: of this optimizer.
        kwargs: the arguments of `ALSOptimizer` but `opt`.
    """

    _INNER = ("learning_rate", "rho", "momentum", "epsilon", "centered")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-07,
        centered: bool = False,
        *args: Any,
        name: str = "ALSOptimizerRMSProp",
        **kwargs: Any,
    ) -> None:
        inner = UnscalingRMSprop(
            learning_rate, rho=rho, momentum=momentum, epsilon=epsilon, centered=centered, name="RMSProp_HypLSFScale"
        )
        super().__init__(inner, *args, **{"name": name, **kwargs})
