"""Optimizers of Keras 2's programs that train several models: one of Keras 3's trains the variables of one model."""

from __future__ import annotations

import logging
import weakref
from typing import Any

import keras

from ipu_tf._state.registry import register_state

_log = logging.getLogger("ipu_tf")
#: Which model an optimizer was compiled into.
_models: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = register_state(
    "models of optimizers of Keras 2", weakref.WeakKeyDictionary(), kept="each goes with its optimizer"
)
#: Which optimizer a like was made of.
_originals: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = register_state(
    "optimizers of Keras 2 that others are like", weakref.WeakKeyDictionary(), kept="each goes with its optimizer"
)


def optimizer_for(model: Any, optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Returns the optimizer, or its like if it trains another model or has trained one that is gone.

    A model that is compiled again keeps the like that it has, with its slots, as long as it is one.
    """
    owner = _models.get(optimizer)
    if owner is None or (owner() is None and not optimizer.built):
        _models[optimizer] = weakref.ref(model)
        return optimizer
    if owner() is model:
        return optimizer
    now = getattr(model, "optimizer", None)
    if now is not None and _is_like(now, optimizer):
        return now
    _log.info("ipu_tf: the optimizer %s has trained another model: this one gets its like.", optimizer.name)
    like = type(optimizer).from_config(optimizer.get_config())
    object.__setattr__(like, "gradient_transformers", optimizer.gradient_transformers)  # no part of a config
    _models[like], _originals[like] = weakref.ref(model), weakref.ref(optimizer)
    return like


def _is_like(now: Any, optimizer: Any) -> bool:
    """Returns whether an optimizer was made of another one, and has what that has now, such as the learning rate."""
    original = _originals.get(now)
    same = original is not None and original() is optimizer
    return bool(same and now.get_config() == optimizer.get_config())
