"""Compatibility module for `keras.optimizer_v2`: Keras's optimizers under Keras 2's module names."""

from __future__ import annotations

import sys
from typing import Any

from keras.optimizers import SGD, Adadelta, Adagrad, Adam, Adamax, Ftrl, Nadam, Optimizer, RMSprop, schedules

__all__ = [
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "Adamax",
    "Ftrl",
    "Nadam",
    "Optimizer",
    "OptimizerV2",
    "RMSprop",
    "adam",
    "gradient_descent",
    "learning_rate_schedule",
    "optimizer_v2",
    "rmsprop",
]

OptimizerV2 = Optimizer
learning_rate_schedule = schedules

#: Keras 2 has these as modules of their own.
adam = gradient_descent = rmsprop = optimizer_v2 = sys.modules[__name__]


def __getattr__(name: str) -> Any:
    if name in ("adadelta", "adagrad", "adamax", "ftrl", "nadam"):
        return sys.modules[__name__]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
