"""Batches of samples of arrays: the same elements as one by one, and as stock Keras gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from ipu_tf._loops.array_feed import ArrayFeed
from ipu_tf.device.errors import InfeedExhausted
from ipu_tf.device.feeds.array_infeed import ArrayInfeed, SampleOrder
from ipu_tf.device.feeds.staging import stage_buffers
from ipu_tf.device.program.replicas import Replicas
from keras_ipu.stock.arrays import arrays_of
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy as strategy

SAMPLES = 24
X, Y = np.arange(SAMPLES * 3, dtype=np.float32).reshape(SAMPLES, 3), np.arange(SAMPLES, dtype=np.int32)


def pieces(samples: list[int], cuts: list[int]) -> Iterator[np.ndarray]:
    """A list of samples, cut into vectors."""
    marks = [0, *sorted(cut % (len(samples) + 1) for cut in cuts), len(samples)]
    return iter([np.array(samples[a:b], np.int64) for a, b in zip(marks, marks[1:], strict=False)])


@given(
    st.permutations(range(SAMPLES)),
    st.lists(st.integers(0, SAMPLES), max_size=4),
    st.integers(1, 5),
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(["fill", "next", "back"]), st.integers(1, 4)), max_size=12),
)
def test_chunks_are_the_elements_in_order(
    samples: list[int], cuts: list[int], batch: int, replicas: int, calls: list[tuple[str, int]]
) -> None:
    types = tuple(jax.ShapeDtypeStruct((batch, *a.shape[1:]), a.dtype) for a in (X, Y))
    infeed = ArrayInfeed("samples", types, (X, Y), SampleOrder(pieces(samples, cuts), batch), lambda: None)
    wanted = np.array(samples[: SAMPLES // batch * batch]).reshape(-1, batch)
    place = 0
    for call, count in calls:
        if call == "next":
            if place == len(wanted):
                with pytest.raises(InfeedExhausted):
                    infeed.next()
                continue
            elements = [infeed.next()]
        else:
            buffers = stage_buffers(types, 4, Replicas(replicas))
            staged = infeed.fill(buffers, count)
            steps = min(count, (len(wanted) - place) // replicas)
            assert staged.count == steps
            assert isinstance(staged.error, InfeedExhausted) == (steps < count)
            if call == "back":
                infeed.return_elements(staged, 0)
                continue
            flat = [b.reshape(-1, *t.shape)[: steps * replicas] for b, t in zip(buffers, types, strict=True)]
            elements = list(zip(*flat, strict=True))
        for x, y in elements:
            np.testing.assert_array_equal(x, X[wanted[place]])
            np.testing.assert_array_equal(y, Y[wanted[place]])
            place += 1
        assert infeed.taken == place


def test_what_stops_a_program_leaves_the_elements() -> None:
    types = (jax.ShapeDtypeStruct((2,), Y.dtype),)
    stop: list[Exception] = [RuntimeError("stop")]

    def check() -> None:
        if stop:
            raise stop.pop()

    infeed = ArrayInfeed("samples", types, (Y,), SampleOrder(iter([np.arange(4)]), 2), check)
    buffers = stage_buffers(types, 2, Replicas())
    stopped = infeed.fill(buffers, 2)
    assert (stopped.count, str(stopped.error)) == (0, "stop")
    assert infeed.fill(buffers, 2).count == 2
    assert buffers[0].tolist() == [[0, 1], [2, 3]]


def test_64_bits_are_32_on_the_device_alone() -> None:
    told: list[tuple[str, str]] = []
    feed = ArrayFeed(
        {"a": X.astype(np.float64), "b": (None, Y.astype(np.int64))}, [np.arange(4)], 2, lambda *c: told.append(c)
    )
    assert told == [("float64", "float32"), ("int64", "int32")]
    spec = feed.spec()
    assert spec["a"] == tf.TensorSpec((2, 3), tf.float64)
    assert spec["b"] == (None, tf.TensorSpec((2,), tf.int64))
    assert [each.dtype for each in feed.types] == [np.float32, np.int32]
    element = next(feed)
    assert element["b"][0] is None
    assert element["b"][1].dtype == np.int64


def made(seed: int) -> keras.Model:
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize("shuffle", [True, False, "batch"])
@pytest.mark.parametrize("kind", [np.asarray, tf.constant], ids=["numpy", "tensor"])
def test_fit_sees_the_samples_in_the_order_of_stock_keras(strategy: Any, shuffle: Any, kind: Any) -> None:
    x, y, weight = kind(X / 100), kind(Y[:, None] / 10), kind(np.linspace(0.1, 1, SAMPLES, dtype=np.float32))
    arguments: dict[str, Any] = {"batch_size": 4, "epochs": 3, "shuffle": shuffle, "verbose": 0}
    arguments.update(sample_weight=weight, validation_split=0.5)
    stock = made(7)
    stock_losses = stock.fit(x, y, **arguments).history
    with strategy.scope(), device_work() as work:
        ours = made(7)
        losses = ours.fit(x, y, **arguments).history
        predicted = ours.predict(x, batch_size=4, verbose=0)
    assert work.counts.executions > 0
    for name, values in stock_losses.items():
        np.testing.assert_allclose(losses[name], values, rtol=1e-5, err_msg=name)
    for mine, theirs in zip(ours.get_weights(), stock.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    # Of the order of 0.1, and some pass through zero.
    np.testing.assert_allclose(predicted, stock.predict(x, batch_size=4, verbose=0), rtol=1e-5, atol=1e-6)


def test_what_is_not_dense_numbers_is_left_to_keras() -> None:
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

    assert arrays_of(ArrayDataAdapter(X, Y, batch_size=4)) is not None
    assert arrays_of(ArrayDataAdapter(np.array(["a", "b"], object), batch_size=1)) is None
    assert arrays_of(object()) is None
