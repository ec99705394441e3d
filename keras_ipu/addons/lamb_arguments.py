"""Arguments of TensorFlow Addons' LAMB, which Graphcore's LAMB calls by other names, with Keras 2 and with Keras 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class LAMBArguments:
    """Base class, before a `LAMBIpuOptimizer`, that takes the arguments of `tensorflow_addons.optimizers.LAMB`.

    Args:
        learning_rate: a float or a schedule.
        beta_1: decay of the mean of gradients.
        beta_2: decay of the mean of their squares.
        epsilon: added to the denominator.
        weight_decay: how much of a variable is added to its change. Releases before 0.16 call it `weight_decay_rate`,
            which is taken too.
        exclude_from_weight_decay: patterns of the variables that do not decay: of their names with Keras 2, of their
            paths with Keras 3.
        exclude_from_layer_adaptation: patterns of those whose changes are not rescaled; by default those that do not
            decay.
        name: of this optimizer.
        kwargs: of `LAMBIpuOptimizer`.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay: float = 0.0,
        exclude_from_weight_decay: Sequence[str] | None = None,
        exclude_from_layer_adaptation: Sequence[str] | None = None,
        name: str = "LAMB",
        **kwargs: Any,
    ) -> None:
        super().__init__(  # type: ignore[call-arg]
            learning_rate,
            beta_1,
            beta_2,
            epsilon,
            kwargs.pop("weight_decay_rate", weight_decay),
            exclude_from_weight_decay,
            exclude_from_layer_adaptation or exclude_from_weight_decay,
            name,
            **kwargs,
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        config: dict[str, Any] = super().get_config()  # type: ignore[misc]
        config["weight_decay"] = config.pop("weight_decay_rate")
        return config
