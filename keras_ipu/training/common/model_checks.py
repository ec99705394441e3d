"""Checks a model, and counts such as `epochs`, before `fit`, `evaluate` and `predict`, on every backend of Keras."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import keras

from ipu_tf._arguments.counts import checked_count
from ipu_tf.emulation import record_ignored
from keras_ipu.optimizers.als_optimizer import ALSOptimizer
from keras_ipu.pipeline.run_checks import OVERRIDDEN
from keras_ipu.stock import patches as keras_patches
from keras_ipu.training.common.eager_runs import check_graphcores_rule
from keras_ipu.training.common.sparse_data import check_ragged, dense_batch

_TRACED = "steps on the device are always traced; `run_eagerly=True` runs them op by op"


def check_runnable(model: Any) -> None:
    """Checks a model before it runs.

    Raises:
        RuntimeError: if it makes its functions itself.
    """
    for function in ("make_train_function", "make_test_function", "make_predict_function"):
        if keras_patches.overridden(model, function):
            raise RuntimeError(OVERRIDDEN.format(function=function, name=model.name))


def compile_arguments(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of `compile`, with `steps_per_execution` as a number; `jit_compile=False` is recorded.

    Raises:
        RuntimeError: if the model is to run eagerly, under Graphcore's rules.
        TypeError, ValueError: for a `steps_per_execution` that is no positive integer.
    """
    eagerly = bool(kwargs.get("run_eagerly"))
    check_graphcores_rule(eagerly)
    if kwargs.get("jit_compile") is False and not eagerly:
        record_ignored("compile.jit_compile", False, _TRACED)
    if "steps_per_execution" not in kwargs:
        return kwargs
    return {**kwargs, "steps_per_execution": checked_count("steps_per_execution", kwargs["steps_per_execution"])}


def scaled_once(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of `compile`, by which no loss that an `ALSOptimizer` scales is scaled by Keras too.

    Keras would put a `LossScaleOptimizer` around it where a model's policy is mixed_float16. That never asks the
    optimizer that it wraps to scale the loss, which would then divide gradients by a factor that is not in them.

    Raises:
        ValueError: for an `ALSOptimizer` in a `LossScaleOptimizer`.
    """
    chain = list(_optimizers_in(args[0] if args else kwargs.get("optimizer")))
    place = next((place for place, each in enumerate(chain) if isinstance(each, ALSOptimizer)), None)
    if place is None:
        return args, kwargs
    if any(isinstance(each, keras.optimizers.LossScaleOptimizer) for each in chain[:place]):
        raise ValueError(
            "The loss is scaled by an ALSOptimizer or by a LossScaleOptimizer around another optimizer. Received: a "
            f"LossScaleOptimizer around {type(chain[place]).__name__}. Give `compile` the latter itself."
        )
    return args[:_AUTO_SCALE_LOSS], {**kwargs, "auto_scale_loss": False}


def _optimizers_in(optimizer: Any) -> Iterator[Any]:
    """Yields an optimizer and those that it wraps, the outermost first."""
    while optimizer is not None:
        yield optimizer
        optimizer = getattr(optimizer, "inner_optimizer", None)


_AUTO_SCALE_LOSS = 8
"""The place of `auto_scale_loss` among the arguments of `compile`, the last one."""
_LEAST = {
    "batch_size": 1,
    "epochs": 0,
    "initial_epoch": 0,
    "steps": 1,
    "steps_per_epoch": 1,
    "validation_batch_size": 1,
    "validation_steps": 1,
}


def checked_arguments(
    method: Callable[..., Any], model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> inspect.BoundArguments:
    """Returns the arguments of fit, evaluate or predict by name, with counts checked and as Python's ints.

    Numbers of epochs may be 0, as in stock Keras; what is left at None stays so. `validation_freq` may also be a list
    of epochs, which is passed on unchanged.

    Args:
        method: `Model.fit`, `evaluate` or `predict`.
        model: whose method it is.
        args: the positional arguments after the model.
        kwargs: the others.

    Raises:
        TypeError: for a count that is no whole number, or arguments that the method does not take.
        ValueError: for a count out of range, or data of which arrays have different numbers of samples.
    """
    bound = inspect.signature(method).bind(model, *args, **kwargs)
    given = bound.arguments
    for name, least in _LEAST.items():
        if given.get(name) is not None:
            given[name] = checked_count(name, given[name], least)
    if isinstance(given.get("validation_freq"), (int, float, str)):
        given["validation_freq"] = checked_count("validation_freq", given["validation_freq"])
    for name in ("x", "validation_data"):
        if given.get(name) is not None:
            check_ragged(given[name])
    return bound


def dense_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns arguments with sparse data made dense: those of train_on_batch and its kin, and of an eager run.

    Raises:
        ValueError: for ragged arrays on Keras's TensorFlow back end.
    """
    named = {name: _dense(value) if name in ("x", "y", "validation_data") else value for name, value in kwargs.items()}
    return (*map(_dense, args[:2]), *args[2:]), named


def _dense(batch: Any) -> Any:
    check_ragged(batch)
    return dense_batch(batch)
