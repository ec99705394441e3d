"""Datasets that stop giving elements without an end, and the error of a program that reads them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tensorflow as tf

SECONDS = 1.0
"""Seconds that a program of a test that uses `stuck` waits for its data."""
STARVED = r"The infeed '\w+' gave nothing for \d\.\d seconds: step {} of its data is still awaited"
Source = Callable[[int], tf.data.Dataset]


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    """Makes datasets of 0., 1., ... that stop giving elements, without an end, after so many."""
    monkeypatch.setenv("IPU_TF_FEED_TIMEOUT", str(SECONDS))
    released = threading.Event()

    def made(good: int) -> tf.data.Dataset:
        def elements() -> Iterator[np.float32]:
            yield from np.arange(good, dtype=np.float32)
            released.wait(60)

        return tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec([], tf.float32))

    yield made
    # Abandoned threads would keep their datasets.
    released.set()
