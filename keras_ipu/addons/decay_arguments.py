"""Arguments of TensorFlow Addons' SGDW and AdamW, and their decay in files, with Keras 2 and with Keras 3."""

from __future__ import annotations

from typing import Any


class SGDWArguments:
    """Base class, before a `DecoupledWeightDecayExtension`, with the arguments of `tensorflow_addons.optimizers.SGDW`.

    Args:
        weight_decay: as the extension's.
        learning_rate: a float or a schedule.
        momentum: how much of the last change is part of the next.
        nesterov: whether momentum is Nesterov's.
        name: of this optimizer.
        kwargs: of the extension and of the optimizer.
    """

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        momentum: float = 0.0,
        nesterov: bool = False,
        name: str = "SGDW",
        **kwargs: Any,
    ) -> None:
        given = {"learning_rate": learning_rate, "momentum": momentum, "nesterov": nesterov, "name": name}
        super().__init__(weight_decay, **given, **kwargs)  # type: ignore[call-arg]


class AdamWArguments:
    """Base class, before a `DecoupledWeightDecayExtension`, with the arguments of `tensorflow_addons.optimizers.AdamW`.

    Args:
        weight_decay: as the extension's.
        learning_rate: a float or a schedule.
        beta_1: decay of the mean of gradients.
        beta_2: decay of the mean of their squares.
        epsilon: added to the denominator.
        amsgrad: whether the greatest mean of squares so far is used.
        name: of this optimizer.
        kwargs: of the extension and of the optimizer.
    """

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        name: str = "AdamW",
        **kwargs: Any,
    ) -> None:
        given = {"learning_rate": learning_rate, "beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon}
        super().__init__(weight_decay, **given, amsgrad=amsgrad, name=name, **kwargs)  # type: ignore[call-arg]


def with_decay_of_file(config: dict[str, Any], schedules: Any, custom_objects: Any) -> dict[str, Any]:
    """Returns an optimizer's config with its `weight_decay` a schedule, where a file has the schedule's own config.

    Args:
        config: as a file has it.
        schedules: the module `keras.optimizers.schedules` of the Keras in use.
        custom_objects: of `from_config`.
    """
    decay = config.get("weight_decay")
    return {
        **config,
        "weight_decay": schedules.deserialize(decay, custom_objects) if isinstance(decay, dict) else decay,
    }
