"""Stand-in for `tensorflow_addons.optimizers`: SGDW, AdamW, LAMB, and the weight decay that makes others of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

import keras

from keras_ipu.addons.decay_arguments import AdamWArguments, SGDWArguments, with_decay_of_file
from keras_ipu.addons.lamb_arguments import LAMBArguments
from keras_ipu.addons.optimizers import LAMBIpuOptimizer
from keras_ipu.addons.optimizers.ipu_optimizer_base import known_path

__all__ = ["LAMB", "SGDW", "AdamW", "DecoupledWeightDecayExtension", "extend_with_decoupled_weight_decay"]


class DecoupledWeightDecayExtension:
    """Base class, before an optimizer of Keras, that subtracts `weight_decay * variable` before each update.

    Other than Keras 3's `weight_decay`, the decay is not multiplied by the learning rate.

    Args:
        weight_decay: a number, a tensor, a schedule of the optimizer's iterations, or a function without arguments.
        exclude_from_weight_decay: patterns of the paths of variables that do not decay.
        kwargs: the optimizer's arguments.

    Example:
        >>> import keras
        >>> optimizer = SGDW(weight_decay=0.5, learning_rate=1.0)
        >>> weight = keras.Variable([4.0])
        >>> optimizer.apply([keras.ops.ones(1)], [weight])
        >>> float(weight[0])
        1.0
    """

    def __init__(self, weight_decay: Any, exclude_from_weight_decay: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.decoupled_weight_decay = weight_decay
        self.exclude_patterns = list(exclude_from_weight_decay or ())

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Decays a variable and updates it."""
        path = known_path(self, variable)
        if not any(re.search(pattern, path) for pattern in self.exclude_patterns):
            decay = self.decoupled_weight_decay
            now = self._now(decay) if callable(decay) else decay
            self.assign_sub(variable, variable * keras.ops.cast(now, variable.dtype))  # type: ignore[attr-defined]
        super().update_step(gradient, variable, learning_rate)  # type: ignore[misc]

    def _now(self, decay: Any) -> Any:
        """Returns the value of a schedule, which takes the iterations, or of a function without arguments."""
        return decay(self.iterations) if inspect.signature(decay).parameters else decay()  # type: ignore[attr-defined]

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Returns an optimizer of these arguments."""
        config = with_decay_of_file(config, keras.optimizers.schedules, custom_objects)
        return super().from_config(config, custom_objects)  # type: ignore[misc]

    def get_config(self) -> dict[str, Any]:
        """The optimizer's arguments and those of the decay."""
        config: dict[str, Any] = super().get_config()  # type: ignore[misc]
        decay = self.decoupled_weight_decay
        config["weight_decay"] = decay if callable(decay) else float(decay)
        return {**config, "exclude_from_weight_decay": self.exclude_patterns}


def extend_with_decoupled_weight_decay(base_optimizer: type) -> type:
    """Returns a class of an optimizer with `DecoupledWeightDecayExtension`, whose first argument is the decay."""
    name = f"{base_optimizer.__name__}WithDecoupledWeightDecay"
    return type(name, (DecoupledWeightDecayExtension, base_optimizer), {})


@keras.saving.register_keras_serializable(package="Addons")
class SGDW(SGDWArguments, DecoupledWeightDecayExtension, keras.optimizers.SGD):
    """Stochastic gradient descent with decoupled weight decay: see `SGDWArguments`."""


@keras.saving.register_keras_serializable(package="Addons")
class AdamW(AdamWArguments, DecoupledWeightDecayExtension, keras.optimizers.Adam):
    """Adam with decoupled weight decay: see `AdamWArguments`."""


@keras.saving.register_keras_serializable(package="Addons")
class LAMB(LAMBArguments, LAMBIpuOptimizer):
    """LAMB, with the arguments of TensorFlow Addons: see `LAMBArguments`."""
