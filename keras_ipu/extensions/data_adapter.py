"""`IPUDataHandler` (`keras.ipu.extensions.data_adapter`): batches and epochs of Keras data, without a model.

`fit`, `evaluate` and `predict` do the same with Keras's own iterator (`keras_ipu.training.common.epoch_iterator`).
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import inspect
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._arguments.counts import checked_count, optional_count
from keras_ipu.training.common.data_checks import checked_data, checked_steps_per_epoch, checked_steps_per_execution

_log = logging.getLogger("ipu_tf")
_FROM_GENERATOR = "use `tf.data.Dataset.from_generator()` to specify the shape of your data."
_WRAPPED = (
    "wrap your iterator inside a generator like so:\n\ndef generator:\n    while True:\n        yield next(iterator)"
    f"\n\nand {_FROM_GENERATOR}"
)


@dataclasses.dataclass(frozen=True)
class _Adapter:
    """Data adapter as `data_checks` expects it; `recreate` says whether each epoch begins at the first batch."""

    num_batches: float | None
    has_partial_batch: bool
    recreate: bool
    _batch_size: int | None

    def should_recreate_iterator(self) -> bool:
        """Returns whether each epoch begins at the first batch."""
        return self.recreate


class IPUDataHandler:
    """Iterates over the epochs of some data, as the device is fed them.

    Args:
        x: a `tf.data.Dataset`, or arrays in any structure.
        y: targets, for arrays.
        sample_weight: weights of samples, for arrays.
        batch_size: for arrays; 32 by default.
        steps_per_epoch: batches of an epoch for all replicas together; None for all there are.
        initial_epoch: number of the first epoch.
        epochs: number after the last epoch.
        shuffle: whether arrays are shuffled in each epoch.
        class_weight: from each class, 0 to one less than their number, to the weight of its samples.
        model: accepted for Graphcore's signature; not looked at.
        steps_per_execution: steps of an execution on each replica, a number or a `tf.Variable`; 1 by default.
        replication_factor: how many replicas share the batches; None if `set_replication_factor` tells later.

    Raises:
        ValueError: for data that is too short, has no known shape or a partial batch, or for steps that do not divide.
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        batch_size: int | None = None,
        steps_per_epoch: int | None = None,
        initial_epoch: int = 0,
        epochs: int = 1,
        shuffle: bool = False,
        class_weight: dict[int, float] | None = None,
        model: Any = None,
        steps_per_execution: Any = None,
        replication_factor: int | None = 1,
    ) -> None:
        batch_size = optional_count("batch_size", batch_size)
        self._epochs = range(checked_count("initial_epoch", initial_epoch, 0), checked_count("epochs", epochs, 0))
        self._wanted = steps_per_epoch = optional_count("steps_per_epoch", steps_per_epoch)
        self._steps_per_execution = optional_count("steps_per_execution", steps_per_execution) or 1
        self._insufficient_data = False
        self._inferred_steps: int | None = None
        self._replication_factor: int | None = None
        _check_kind(x)
        arrays = None if isinstance(x, tf.data.Dataset) else _structure(x, y, sample_weight)
        size = 32 if arrays is not None and batch_size is None else batch_size
        dataset = x if arrays is None else _batches(arrays, size, shuffle)
        checked_data(dataset, steps_per_epoch)
        weighted = dataset if class_weight is None else dataset.map(_weighting(dataset.element_spec, class_weight))
        self._dataset = weighted.map(_narrow)
        self._adapter = self._adapter_of(arrays, size)
        self._check_size()
        if replication_factor is not None:
            self.set_replication_factor(replication_factor)

    @property
    def inferred_steps(self) -> int:
        """Returns the number of steps of an epoch on each replica.

        Raises:
            ValueError: if the number is unknown.
            RuntimeError: before the replication factor is set.
        """
        self._check_replicated("inferred_steps")
        if self._inferred_steps is None:
            raise ValueError("Could not infer the size of the data. You must specify the number of steps to run.")
        return self._inferred_steps

    @property
    def steps_per_execution_value(self) -> int:
        """Returns the number of steps of an execution on each replica."""
        self._check_replicated("steps_per_execution_value")
        return self._steps_per_execution

    @property
    def element_spec(self) -> Any:
        """The specs of a batch."""
        return self._dataset.element_spec

    def set_replication_factor(self, value: int) -> None:
        """Sets how many replicas share the batches.

        Raises:
            ValueError: for fewer batches than replicas, or steps of executions that do not divide those of an epoch.
        """
        self._replication_factor = value = checked_count("replication_factor", value)
        self._inferred_steps = checked_steps_per_epoch(self._adapter, self._wanted, value)
        self._steps_per_execution = checked_steps_per_execution(self._inferred_steps, self._steps_per_execution, value)

    def enumerate_epochs(self) -> Iterator[tuple[int, Any]]:
        """Yields each epoch's number and the iterator over its batches; stops early if the data ended."""
        batches = iter(self._dataset)
        for epoch in self._epochs:
            if self._insufficient_data:
                return
            if self._adapter.recreate:
                batches = iter(self._dataset)
            yield epoch, batches

    def steps(self) -> Iterator[int]:
        """Yields the first step of each execution of an epoch, until the data ends."""
        for step in range(0, self.inferred_steps, self._steps_per_execution):
            if self._insufficient_data:
                return
            yield step

    @contextlib.contextmanager
    def catch_stop_iteration(self) -> Iterator[None]:
        """Context in which the end of the data ends the epochs, with a warning."""
        try:
            yield
        except (StopIteration, tf.errors.OutOfRangeError):
            self._insufficient_data = True
            _log.warning("ipu_tf: the data ended before %s steps were run.", self._inferred_steps)

    def _adapter_of(self, arrays: Any, batch_size: int | None) -> _Adapter:
        count = int(self._dataset.cardinality())
        endless = count == tf.data.INFINITE_CARDINALITY
        known = None if count == tf.data.UNKNOWN_CARDINALITY else float("inf") if endless else count
        partial = arrays is not None and bool(len(tf.nest.flatten(arrays)[0]) % (batch_size or 1))
        return _Adapter(known, partial, arrays is not None or self._wanted in (None, known), batch_size)

    def _check_size(self) -> None:
        """Checks that data which continues from epoch to epoch lasts for all of them."""
        there = self._adapter.num_batches
        if self._adapter.recreate or there is None or self._wanted is None:
            return
        wanted = self._wanted * len(self._epochs)
        if there < wanted:
            raise ValueError(
                "Your input does not have enough data. Make sure that your dataset or generator can generate at least "
                f"{wanted} batches (currently it can only generate {there} batches). You may need to use the repeat() "
                "function when building your dataset."
            )

    def _check_replicated(self, name: str) -> None:
        if self._replication_factor is None:
            raise RuntimeError(f"Cannot call {name} before the replication factor is set. Call set_replication_factor.")


def _check_kind(x: Any) -> None:
    if isinstance(x, tf.data.Dataset) or not isinstance(x, collections.abc.Iterator):
        return
    advice = _FROM_GENERATOR if inspect.isgenerator(x) else _WRAPPED
    raise ValueError(
        f"The provided set of data is of type `{type(x)}` which is not compatible with the IPU's requirement to know "
        f"the data shape ahead of time. Please {advice}"
    )


def _structure(x: Any, y: Any, sample_weight: Any) -> Any:
    given = [_arrays(part) for part in (x, y, sample_weight)]
    while len(given) > 1 and given[-1] is None:
        given.pop()
    return given[0] if len(given) == 1 else tuple(given)


def _arrays(part: Any) -> Any:
    """Converts lists to arrays: a list of arrays is several inputs, as in Keras; any other list is one array."""
    if isinstance(part, dict):
        return {name: np.asarray(value) for name, value in part.items()}
    if isinstance(part, (list, tuple)) and all(isinstance(each, (np.ndarray, tf.Tensor)) for each in part):
        return tuple(map(np.asarray, part))
    return None if part is None else np.asarray(part)


def _batches(arrays: Any, batch_size: int | None, shuffle: bool) -> tf.data.Dataset:
    count = len(tf.nest.flatten(arrays)[0])
    slices = tf.data.Dataset.from_tensor_slices(arrays)
    slices = slices.shuffle(count, reshuffle_each_iteration=True) if shuffle else slices
    return slices.batch(min(batch_size or count, count), drop_remainder=True)


def _narrow(*element: Any) -> Any:
    """Casts 64-bit numbers to the device's 32-bit types."""
    narrow = tf.nest.map_structure(lambda t: tf.cast(t, tf.float32) if t.dtype == tf.float64 else t, element)
    return narrow[0] if len(narrow) == 1 else narrow


def _weighting(spec: Any, class_weight: dict[int, float]) -> Any:
    """Returns a function that adds class weights to a batch.

    Raises:
        ValueError: for several outputs, or keys that are not all the classes.
    """
    if not isinstance(spec, tuple) or len(spec) < 2 or not isinstance(spec[1], tf.TensorSpec):
        raise ValueError("`class_weight` is only supported for models with a single output.")
    if sorted(class_weight) != list(range(len(class_weight))):
        raise ValueError(
            "Expected `class_weight` to be a dict with keys from 0 to one less than the number of classes. Received: "
            f"the keys {sorted(class_weight)}."
        )
    weights = tf.constant([float(class_weight[key]) for key in sorted(class_weight)])

    def weighted(x: Any, y: Any, sample_weight: Any = None) -> Any:
        one_hot = y.shape.rank == 2 and y.shape[1] > 1
        classes = tf.argmax(y, axis=1) if one_hot else tf.cast(tf.reshape(y, [-1]), tf.int64)
        found = tf.gather(weights, classes)
        given = found if sample_weight is None else found * tf.cast(tf.reshape(sample_weight, [-1]), tf.float32)
        return x, y, given

    return weighted
