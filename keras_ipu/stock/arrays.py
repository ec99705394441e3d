"""Private API of Keras's data adapters, arrays and their shuffling order, and of its backend's arrays of zeros.

If Keras moves one of these, `tests/project/test_private_api.py` names it.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import dataclasses
import functools
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import tensorflow as tf
from keras.src import backend as _backend
from keras.src.trainers.data_adapters import array_slicing as _array_slicing
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter as _ArrayDataAdapter
from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter as _GeneratorDataAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter as _TFDatasetAdapter

from ipu_tf._patches.installation import replace_in
from ipu_tf._state.context import context_value


@dataclasses.dataclass(frozen=True)
class ArrayBatches:
    """Arrays of a Keras data adapter, with batch size and order.

    Attributes:
        arrays: the structure of a batch, of arrays `[samples, ...]` and `None`s.
        batch: samples of a batch; all of them if there are fewer.
        samples: how many there are.
        order: Keras's dataset of the indices of the samples of an epoch; None if they come as they are.
    """

    arrays: Any
    batch: int
    samples: int
    order: tf.data.Dataset | None

    def dataset(self) -> tf.data.Dataset:
        """Returns an empty dataset for Keras to keep; making one of the batches would copy the arrays."""
        return _no_dataset() if self.order is None else self.order

    def indices(self) -> Iterable[Any]:
        """The indices of the samples of an epoch, in vectors of any length."""
        return [np.arange(self.samples)] if self.order is None else self.order


@functools.cache
def _no_dataset() -> tf.data.Dataset:
    """Returns an empty dataset, which is never read; cached, as making one takes a millisecond."""
    with tf.init_scope():
        return tf.data.Dataset.from_tensors(0)


def arrays_of(adapter: Any) -> ArrayBatches | None:
    """Returns the dense numeric arrays of a Keras data adapter; None for other data, and for arrays without samples.

    The order is that of the adapter's own dataset: the same random operations with the same seeds make it, on the
    indices instead of on what they stand for.
    """
    if type(adapter) is not _ArrayDataAdapter or adapter._num_samples == 0:
        return None
    arrays = keras.tree.lists_to_tuples(
        _array_slicing.convert_to_sliceable(adapter._inputs, target_backend="tensorflow")
    )
    if not all(leaf is None or _is_dense(leaf) for leaf in tf.nest.flatten(arrays)):
        return None
    arrays = tf.nest.map_structure(lambda leaf: None if leaf is None else np.asarray(leaf), arrays)
    order = _shuffled_indices(adapter) if adapter._shuffle else None
    return ArrayBatches(arrays, min(adapter._batch_size, adapter._num_samples), adapter._num_samples, order)


def samples_of(adapter: Any) -> tuple[int, int] | None:
    """Returns the number of samples and the batch size of a Keras data adapter of arrays; None for other data."""
    return (adapter._num_samples, adapter._batch_size) if type(adapter) is _ArrayDataAdapter else None


def can_prefetch(adapter: Any) -> bool:
    """Returns whether batches may be read before Keras asks for them: those of arrays and of TensorFlow's datasets."""
    return type(adapter) in (_ArrayDataAdapter, _TFDatasetAdapter)


def _is_dense(leaf: Any) -> bool:
    if isinstance(leaf, tf.Tensor):
        return bool(leaf.dtype.is_floating or leaf.dtype.is_integer or leaf.dtype.is_bool)
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biuf"


def _shuffled_indices(adapter: Any) -> tf.data.Dataset:
    samples = adapter._num_samples
    if adapter._shuffle == "batch":  # which shuffles each batch for itself
        ordered = copy.copy(adapter)
        ordered._inputs = np.arange(samples)
        return ordered.get_tf_dataset().with_options(_plain())

    @tf.autograph.experimental.do_not_convert
    def shuffled(_: tf.Tensor) -> tf.Tensor:
        return tf.random.shuffle(tf.range(samples, dtype=tf.int64))

    return tf.data.Dataset.range(1).map(shuffled).with_options(_plain())


def _plain() -> tf.data.Options:
    """Disables autotuning for a dataset of indices, whose iterator is then destroyed at once."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return options


def spec_of(adapter: Any, arrays: ArrayBatches | None) -> Any:
    """Returns shape and dtype of each array of a batch of a Keras data adapter, as `jax.ShapeDtypeStruct` has them.

    Args:
        adapter: the adapter, of Keras on TensorFlow.
        arrays: what `arrays_of` returned for it.
    """
    if arrays is not None:
        return tf.nest.map_structure(
            lambda leaf: None if leaf is None else np.broadcast_to(leaf[:1], (arrays.batch, *leaf.shape[1:])),
            arrays.arrays,
        )
    return tf.nest.map_structure(_keras_spec, adapter.get_tf_dataset().element_spec)


def _keras_spec(spec: Any) -> Any:
    if not hasattr(spec, "dtype"):
        return None  # Keras's stand-in for no array
    return keras.KerasTensor(tuple(spec.shape.as_list()), spec.dtype.name)


def data_facts(adapter: Any) -> dict[str, Any]:
    """Returns what is known of the data of a Keras data adapter without reading batches: kind, sizes, checksums."""
    facts: dict[str, Any] = {"kind": type(adapter).__name__, "batches": adapter.num_batches}
    if type(adapter) is _ArrayDataAdapter:
        leaves = [leaf for leaf in keras.tree.flatten(adapter._inputs) if leaf is not None]
        facts |= {"batch_size": adapter._batch_size, "shuffle": adapter._shuffle}
        facts["arrays"] = [f"{leaf.dtype} {tuple(leaf.shape)} {_checksum(leaf)}" for leaf in leaves]
    return facts


def _checksum(leaf: Any) -> int:
    """Returns a checksum of up to a thousand samples of an array, from its beginning to its end."""
    if not hasattr(leaf, "__array__"):
        return 0
    chosen = np.linspace(0, len(leaf) - 1, min(len(leaf), 1000), dtype=np.int64)
    return zlib.crc32(np.ascontiguousarray(np.asarray(leaf)[chosen]).tobytes())


def dataset_of(adapter: Any) -> tf.data.Dataset | None:
    """Returns the `tf.data.Dataset` that a Keras data adapter was given; None for other data."""
    return adapter._dataset if type(adapter) is _TFDatasetAdapter else None


def replay_epochs(adapter: Any, epochs: int) -> None:
    """Calls a `PyDataset`'s methods of the beginnings and ends of so many epochs, which may change its order."""
    for _ in range(epochs if hasattr(adapter, "py_dataset") else 0):
        dataset = adapter.py_dataset
        dataset.on_epoch_begin()
        dataset.on_epoch_end()


def is_endless_generator(adapter: Any) -> bool:
    """Returns whether a Keras data adapter reads a Python generator, whose length is unknown."""
    return type(adapter) is _GeneratorDataAdapter


_from_host: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_zeros_from_host", default=False)


@contextlib.contextmanager
def zeros_from_host() -> Iterator[None]:
    """Context in which Keras on JAX makes zeros of the host's memory: the same arrays, and no program for each shape.

    JAX compiles one for each shape of an optimizer's variables: a second for MobileNetV2.
    """
    replace_in(_backend.numpy, "zeros", _zeros)
    with context_value(_from_host, True):
        yield


def _zeros(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def zeros(shape: Any, dtype: Any = None) -> Any:
        if not _from_host.get() or keras.distribution.distribution() is not None:
            return stock(shape, dtype=dtype)
        return jax.device_put(np.zeros(shape, jnp.dtype(dtype or keras.config.floatx())))

    return zeros
