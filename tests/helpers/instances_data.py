"""Programs of two instances whose data differ in number, or do not differ where they should: what each raises or logs.

python -m tests.helpers.instances_data CASE...      in each instance; prints a line `CASE: ...` for each
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf import popdist
from ipu_tf.distributed.popdist_strategy import PopDistStrategy
from ipu_tf.popdist.tensorflow import set_ipu_config

ROWS = 4


class Records(logging.Handler):
    """Keeps what is logged of training on the same data."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told += [record.getMessage()] if "same data" in record.getMessage() else []


def arrays(batches: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(batches * ROWS, 3)).astype(np.float32)
    return x, x.sum(1, keepdims=True)


def batches_of(batches: int, seed: int, counted: bool = True) -> tf.data.Dataset:
    data = tf.data.Dataset.from_tensor_slices(arrays(batches, seed)).batch(ROWS, drop_remainder=True)
    return data if counted else data.filter(tf.autograph.experimental.do_not_convert(lambda x, y: x[0, 0] > -1e9))


def fit(data: Any, eagerly: bool = False, steps: int = 4, epochs: int = 2, **others: Any) -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=eagerly, steps_per_execution=1 if eagerly else steps)
    given = {"x": data[0], "y": data[1]} if isinstance(data, tuple) else {"x": data}
    model.fit(**given, batch_size=None if "y" not in given else ROWS, epochs=epochs, verbose=0, shuffle=False, **others)


def loops(counts: list[int], index: int) -> None:
    """Runs a loop of a queue's elements, of which one instance has fewer."""
    queue = ipu.ipu_infeed_queue.IPUInfeedQueue(batches_of(counts[index], index))

    def body(total: tf.Tensor, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return total + ipu.cross_replica_ops.cross_replica_sum(tf.reduce_sum(y))

    step = tf.function(lambda: ipu.loops.repeat(20, body, [tf.constant(0.0)], queue), jit_compile=True)
    tf.distribute.get_strategy().run(step)


def with_values(rows: list[Any], kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Arrays that say little, or differ where pieces of them do not."""
    x = np.zeros((40_000, 3), np.float32)
    if kind == "late":
        x[:] = np.random.default_rng(5).normal(size=x.shape)
        x[9_000:9_100] = rows[0]
    return x, np.zeros((len(x), 1), np.float32)


def cases(index: int) -> dict[str, Any]:
    """What is run, by name."""
    counts = [20, 16]
    return {
        "known": lambda: fit(batches_of(counts[index], index)),
        "unknown": lambda: fit(batches_of(counts[index], index, counted=False)),
        "one step": lambda: fit(batches_of(counts[index], index, counted=False), steps=1),
        "validation": lambda: fit(batches_of(4, index), validation_data=batches_of(counts[index], index)),
        "eager in one": lambda: fit(batches_of(4, index), eagerly=index == 1),
        "eager": lambda: fit(batches_of([4, 2][index], index, counted=False), eagerly=True),
        "queue": lambda: loops(counts, index),
        "as many": lambda: fit(batches_of(4, index, counted=False), epochs=3),
        "same": lambda: fit(batches_of(4, 0)),
        "same arrays": lambda: fit(arrays(4, 0)),
        "same, eager": lambda: fit(batches_of(2, 0), eagerly=True, epochs=1),
        "zeros": lambda: fit(with_values([], "zeros"), epochs=1, steps_per_epoch=4),
        "late": lambda: fit(with_values([index], "late"), epochs=1, steps_per_epoch=4),
        "other": lambda: fit(batches_of(4, index)),
    }


def main() -> None:
    popdist.init()
    records = Records()
    logging.getLogger("ipu_tf").addHandler(records)
    set_ipu_config(ipu.config.IPUConfig()).configure_ipu_system()
    known = cases(popdist.getInstanceIndex())
    for name in sys.argv[1:]:
        records.told.clear()
        keras.utils.set_random_seed(1)
        try:
            with PopDistStrategy().scope():
                known[name]()
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
        else:
            print(f"{name}: {' '.join(records.told)}", flush=True)


if __name__ == "__main__":
    main()
