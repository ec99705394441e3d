"""Checks Keras data: static shapes, full batches, number of steps."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._loops.feature_names import check_whole_numbers
from ipu_tf._state.once import first_time

_log = logging.getLogger("ipu_tf")
_NONE = type(tf.type_spec_from_value(None))
"""The class of the spec of `None` in an element, as where a dataset gives no targets."""


def checked_data(x: Any, steps_per_epoch: int | None, full: bool = True) -> None:
    """Checks a `tf.data.Dataset`; other data is checked when its batches are known.

    Args:
        x: the data.
        steps_per_epoch: batches that the user asked for, or None for all of the data.
        full: whether shapes have to be fully defined.

    Raises:
        ValueError: for an infinite dataset without a number of steps, or elements that are no dense tensors; for an
            element whose shape is not fully defined where it has to be.
    """
    if not isinstance(x, tf.data.Dataset):
        return
    if steps_per_epoch is None and x.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            "When providing an infinite dataset, you must specify the number of steps to run (if you did not intend to "
            "create an infinite dataset, make sure to not call `repeat()` on the dataset)."
        )
    for spec in tf.nest.flatten(x.element_spec):
        if isinstance(spec, _NONE):
            continue
        if not isinstance(spec, tf.TensorSpec | tf.SparseTensorSpec):
            raise ValueError(
                f"The device is fed dense tensors. Received: a dataset with elements of {spec}. Pad rows of different "
                "lengths: `dataset.map(lambda x, y: (x.to_tensor(), y))`."
            )
        if full and not spec.shape.is_fully_defined():
            raise ValueError(
                f"The provided set of data contains a shape {spec.shape} which is not fully defined. Executing on IPU "
                "requires all dataset elements to have fully defined shapes. If using batch() make sure to set "
                "`drop_remainder=True`."
            )


def checked_steps_per_epoch(adapter: Any, steps_per_epoch: int | None, replicas: int = 1) -> int | None:
    """Returns the steps of each replica in an epoch by Graphcore's rules; None if unknown before the data ends.

    Args:
        adapter: Keras's view of the data: `num_batches` is None if unknown; `has_partial_batch`.
        steps_per_epoch: batches that the user asked for, or None for all of the data.
        replicas: how many replicas share the batches. Those left over are dropped, with a warning.

    Raises:
        ValueError: for a partial batch, or too little data.
    """
    batches = adapter.num_batches
    if _has_partial_batch(adapter):
        raise ValueError(
            "The provided set of data has a partial batch, which could result in data being dropped. Either adjust the "
            f"`batch_size` of your model (currently set to {_batch_size(adapter)}) or pad your dataset to ensure there "
            "are no partial batches."
        )
    if steps_per_epoch is not None and batches is not None and batches < steps_per_epoch:
        raise ValueError(
            "Your input does not have enough data. Make sure that your dataset or generator can generate at least "
            f"{steps_per_epoch} batches (currently it can only generate {batches} batches). You may need to use the "
            "repeat() function when building your dataset."
        )
    total = steps_per_epoch or batches
    if total is None or not np.isfinite(total):
        return None
    if total < replicas:
        raise ValueError(
            f"The provided dataset contains {total} items, but all {replicas} replicas are requested to run 1 steps "
            f"each. Make sure the dataset contains at least {replicas} items."
        )
    if total % replicas:
        _warn_dropped_batches(int(total), replicas)
    return int(total) // replicas


def checked_steps_per_execution(steps: int | None, steps_per_execution: int, replicas: int = 1) -> int:
    """Returns the steps of an execution by Graphcore's rules.

    Args:
        steps: steps of an epoch on each replica; None if unknown.
        steps_per_execution: what the model was compiled with. More than there are steps means all steps at once.
        replicas: how many replicas there are.

    Raises:
        ValueError: for executions that do not divide the epoch evenly.
    """
    if steps is None:
        return steps_per_execution
    if steps_per_execution > steps:
        _warn_shorter_execution(steps_per_execution, steps)
        return steps
    if steps % steps_per_execution:
        to_whom = " to this replica" if replicas > 1 else ""
        raise ValueError(
            f"`steps_per_execution` ({steps_per_execution}) must be a divisor of the number of batches ({steps}) in "
            f"the dataset provided{to_whom}."
        )
    return steps_per_execution


def _warn_dropped_batches(batches: int, replicas: int) -> None:
    left = batches % replicas
    _log.warning(
        "Dataset of length %d is being evenly distributed between %d replicas. The remaining %d batch%s will be "
        "dropped.",
        batches,
        replicas,
        left,
        "" if left == 1 else "es",
    )


def _has_partial_batch(adapter: Any) -> bool:
    """Returns whether the last batch is known to be smaller than the others."""
    try:
        return bool(adapter.has_partial_batch)
    except NotImplementedError:
        # What Keras's adapters of generators and of `PyDataset`s say, which only know a batch once it is made. If its
        # shape differs from that of the first, the infeed refuses it.
        return False


def check_batch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Checks that a batch's integers fit 32 bits, since Keras on JAX casts them before the device gets them.

    Args:
        args: what `train_on_batch`, `test_on_batch` or `predict_on_batch` was called with after the model.
        kwargs: the same, by name.

    Raises:
        NumberOutOfRange: for a number that 32 bits do not have.
    """
    given = dict(zip(("x", "y", "sample_weight"), args, strict=False)) | kwargs
    check_whole_numbers((given.get("x"), given.get("y"), given.get("sample_weight")))


def _warn_shorter_execution(wanted: int, steps: int) -> None:
    """Warns once for each pair of numbers that executions are shorter than `steps_per_execution`."""
    if first_time("shorter execution", wanted, steps):
        _log.warning("ipu_tf: `steps_per_execution` (%d) is cut to the %d steps that there are.", wanted, steps)


def _batch_size(adapter: Any) -> Any:
    return getattr(adapter, "_batch_size", "unknown")
