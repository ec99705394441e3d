"""Benchmarks datasets and infeeds without a device: time and throughput of each epoch."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._arguments.counts import checked_integer
from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf._data.dataset_reading import Elements, check_dataset, read_dataset
from ipu_tf.ipu_infeed_queue import IPUInfeedQueue
from ipu_tf.lowering.tensorflow.host_op import HostOp


def dataset_benchmark(
    dataset: tf.data.Dataset,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    apply_debug_options: bool = True,
    do_memcpy: bool = True,
) -> tf.Tensor:
    """Measures the throughput of a dataset.

    Args:
        dataset: the dataset; read from its start, on over the epochs.
        number_of_epochs: how often to measure.
        elements_per_epochs: how many elements to take each time.
        print_stats: whether to print what was measured.
        apply_debug_options: without effect: TensorFlow applies `tf.data.experimental.enable_debug_mode` by itself.
        do_memcpy: whether each element is copied into another buffer, as feeding a device does.

    Returns:
        A tensor of shape `[1]` with a JSON string: `{"epochs": [...]}`, and for each epoch `elements_processed`,
        `total_bytes_processed`, `time_elapsed` (s), `elements_per_second` and `bandwidth` (GB/s).

    Raises:
        ValueError: if a number is below 1.
        TypeError: if `dataset` is none.
        tf.errors.InvalidArgumentError: when it runs, for elements without data.
        tf.errors.OutOfRangeError: when it runs, if the dataset has too few elements.

    Example:
        >>> import json
        >>> import tensorflow as tf
        >>> from ipu_tf.dataset_benchmark import dataset_benchmark
        >>> measured = dataset_benchmark(tf.data.Dataset.range(6), 2, 3, print_stats=False)
        >>> [epoch["total_bytes_processed"] for epoch in json.loads(measured.numpy()[0])["epochs"]]
        [24, 24]
    """
    for name, number in (("number_of_epochs", number_of_epochs), ("elements_per_epochs", elements_per_epochs)):
        if checked_integer(name, number) < 1:
            raise ValueError(f"Expected `{name}` to be at least 1. Received: {number}.")
    check_dataset(dataset)
    record_ignored("dataset_benchmark.apply_debug_options", None if apply_debug_options else False)

    def measured(elements: Elements) -> list[np.ndarray]:
        epochs = [_epoch(elements, elements_per_epochs, do_memcpy) for _ in range(number_of_epochs)]
        if print_stats:
            for number, epoch in enumerate(epochs):
                print(f"Epoch {number}: " + ", ".join(f"{key} {value:g}" for key, value in epoch.items()))
        return [np.array([json.dumps({"epochs": epochs}).encode()], object)]

    result = read_dataset(dataset, measured, [tf.TensorSpec([1], tf.string)], "dataset_benchmark")
    return result.results[0] if isinstance(result, HostOp) else tf.constant(result[0], tf.string)


def infeed_benchmark(
    infeed_queue: IPUInfeedQueue,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    do_memcpy: bool = True,
) -> tf.Tensor:
    """Measures the throughput of an infeed's dataset. The infeed itself is unchanged.

    Args:
        infeed_queue: the infeed.
        number_of_epochs: as for `dataset_benchmark`, like the other arguments and the result.
        elements_per_epochs: as for `dataset_benchmark`.
        print_stats: as for `dataset_benchmark`.
        do_memcpy: as for `dataset_benchmark`.

    Raises:
        TypeError: if `infeed_queue` is none.
        ValueError: if a number is below 1.
    """
    if not isinstance(infeed_queue, IPUInfeedQueue):
        raise TypeError(
            "Expected `infeed_queue` argument to be of type `ipu.ipu_infeed_queue.IPUInfeedQueue`, but got "
            f"{infeed_queue} instead."
        )
    dataset = infeed_queue._dataset
    return dataset_benchmark(
        dataset, number_of_epochs, elements_per_epochs, print_stats=print_stats, do_memcpy=do_memcpy
    )


def _epoch(elements: Elements, count: int, copy: bool) -> dict[str, Any]:
    began = time.perf_counter()
    taken = size = 0
    for element in itertools.islice(elements, count):
        taken += 1
        for array in element:
            if array.size == 0:
                raise tf.errors.InvalidArgumentError(
                    None, None, "Detected a tensor in the dataset with a dimension of size 0. Please remove it."
                )
            size += array.nbytes
            if copy:
                np.array(array)
    seconds = max(time.perf_counter() - began, 1e-9)
    if taken < count:
        raise tf.errors.OutOfRangeError(
            None, None, f"The dataset ended: wanted {count} elements in this epoch, got {taken}. Use dataset.repeat()."
        )
    return {
        "elements_processed": taken,
        "total_bytes_processed": size,
        "time_elapsed": seconds,
        "elements_per_second": taken / seconds,
        "bandwidth": size / seconds / 1e9,
    }
