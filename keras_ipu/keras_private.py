"""Everything the project takes from Keras beyond its public interface.

If Keras moves one of these, `tests/test_private_api.py` names it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

from keras.src.backend.tensorflow import trainer as _tf_trainer

StockEpochIterator = _tf_trainer.TFEpochIterator
"""Keras's iterator over the executions of an epoch."""


class Replacement(Protocol):
    """What takes over from Keras's trainer for models that are its own."""

    methods: dict[str, Callable[..., Any]]
    """By name of the method: `ours(stock, model, *args, **kwargs)`."""

    def owns(self, model: Any) -> bool:
        """Whether a model is one of ours."""
        ...

    def epoch_iterator(self, *args: Any, **kwargs: Any) -> Any:
        """Ours or the stock epoch iterator, as its `distribute_strategy` says."""
        ...


def install(replacement: Replacement) -> None:
    """Puts a replacement into Keras's TensorFlow trainer, once. Other models keep the stock behaviour."""
    trainer = _tf_trainer.TensorFlowTrainer
    if getattr(trainer, "_ipu_replacement", None) is replacement:
        return
    for name, ours in replacement.methods.items():
        # In the class that defines it: Keras asks whether a model's class overrides `Trainer.compile`.
        owner = next(kind for kind in trainer.__mro__ if name in vars(kind))
        setattr(owner, name, _chosen(replacement, getattr(trainer, name), ours))
    _tf_trainer.TFEpochIterator = replacement.epoch_iterator
    trainer._ipu_replacement = replacement


def overridden(model: Any, name: str) -> bool:
    """Whether a model's class has a method of its own in place of Keras's trainer's."""
    return getattr(type(model), name) is not getattr(_tf_trainer.TensorFlowTrainer, name)


def strategy_of(model: Any) -> Any:
    """The strategy in whose scope a model was made, or None."""
    return getattr(model, "_distribute_strategy", None)


def adopt(optimizer: Any, strategy: Any) -> None:
    """Makes an optimizer, and the one it may wrap, belong to a strategy, wherever it was made."""
    while optimizer is not None:
        optimizer._distribution_strategy = strategy
        optimizer = getattr(optimizer, "inner_optimizer", None)


def _chosen(replacement: Replacement, stock: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if replacement.owns(self):
            return ours(stock, self, *args, **kwargs)
        return stock(self, *args, **kwargs)

    return method
