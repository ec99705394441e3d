"""Synthetic data: values on the device and on the host, category by category."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import ipu_tf as ipu
from ipu_tf._config.flags import parse
from ipu_tf.device.feeds import synthetic
from ipu_tf.device.feeds.synthetic import SyntheticData, TransferKind
from ipu_tf.emulation import clear_session
from ipu_tf.ipu_infeed_queue import IPUInfeedQueue
from ipu_tf.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu_tf.utils import SyntheticDataCategory, use_synthetic_data_for
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy as strategy

CATEGORIES = list(SyntheticDataCategory)[:-1]
NAMES = ["seed", "infeed", "outfeed", "hostembedding", "parameters"]


@pytest.fixture(autouse=True)
def nothing_synthetic() -> Iterator[None]:
    """No data is synthetic, before and after."""
    yield
    clear_session()


def numbers() -> tf.data.Dataset:
    """The dataset 1.0, 2.0, 3.0."""
    return tf.data.Dataset.from_tensor_slices(np.array([1, 2, 3], np.float32))


def summed(queue: IPUInfeedQueue, steps: int) -> tf.types.experimental.GenericFunction:
    """A function that adds up elements."""
    return tf.function(lambda: ipu.loops.repeat(steps, lambda total, element: total + element, [0.0], queue))


@pytest.mark.parametrize("category", [*NAMES, ""])
def test_categories_are_asked_one_by_one(category: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--synthetic_data_categories={category}")
    assert [use_synthetic_data_for(item) for item in CATEGORIES] == [name == category for name in NAMES]


def test_all_categories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_synthetic_data")
    assert [use_synthetic_data_for(item) for item in CATEGORIES] == [True] * 5
    assert not use_synthetic_data_for(SyntheticDataCategory.Unknown)
    assert use_synthetic_data_for(1)
    assert [int(item) for item in SyntheticDataCategory] == list(range(6))
    with pytest.raises(ValueError, match="6 is not a valid SyntheticDataCategory"):
        use_synthetic_data_for(6)


@pytest.mark.parametrize(("initializer", "expected"), [("", 0.0), ("3", 30.0), ("-2", -20.0)])
def test_an_infeed_gives_the_initializer_without_end(
    initializer: str, expected: float, monkeypatch: pytest.MonkeyPatch, strategy: Any
) -> None:
    monkeypatch.setenv(
        "TF_POPLAR_FLAGS", f"--synthetic_data_categories=infeed --synthetic_data_initializer={initializer}"
    )
    with device_work() as work:
        result = strategy.run(summed(IPUInfeedQueue(numbers()), 10))
    assert float(result) == expected
    assert work.counts.steps == 10


def test_a_synthetic_infeed_never_reads_its_dataset(monkeypatch: pytest.MonkeyPatch, strategy: Any) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--synthetic_data_categories=infeed")
    read: list[int] = []

    def note(value: np.ndarray) -> np.ndarray:
        read.append(1)
        return value

    dataset = numbers().map(lambda value: tf.ensure_shape(tf.numpy_function(note, [value], tf.float32), []))
    strategy.run(summed(IPUInfeedQueue(dataset), 4))
    assert read == []


def test_a_null_feed_gives_zeros(monkeypatch: pytest.MonkeyPatch, strategy: Any) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--null_data_feed")
    assert float(strategy.run(summed(IPUInfeedQueue(numbers()), 10))) == 0.0


def enqueueing(queue: IPUOutfeedQueue, steps: int) -> tf.types.experimental.GenericFunction:
    """A function that counts, enqueues each number, and returns the last."""

    def body(number: tf.Tensor) -> Any:
        return number + 1, queue.enqueue(number)

    return tf.function(lambda: ipu.loops.repeat(steps, body, [0.0]))


def test_an_outfeed_gives_no_elements(monkeypatch: pytest.MonkeyPatch, strategy: Any) -> None:
    queue = IPUOutfeedQueue()
    count = enqueueing(queue, 3)
    strategy.run(count)
    assert queue.dequeue().numpy().tolist() == [0, 1, 2]
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--synthetic_data_categories=outfeed")
    assert float(strategy.run(count)) == 3.0
    assert queue.dequeue().shape == (0,)
    strategy.run(count)
    assert list(queue) == []


def test_the_last_element_is_an_error(monkeypatch: pytest.MonkeyPatch, strategy: Any) -> None:
    queue = IPUOutfeedQueue(outfeed_mode=IPUOutfeedMode.LAST)
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_synthetic_data")
    strategy.run(enqueueing(queue, 3))
    with pytest.raises(tf.errors.FailedPreconditionError) as caught:
        queue.dequeue()
    assert caught.value.message == (
        "Trying to get the last value from an outfeed queue when using synthethic data. This is not supported."
    )


def test_a_synthetic_seed_is_the_same_every_time(monkeypatch: pytest.MonkeyPatch, strategy: Any) -> None:
    draw = tf.function(lambda: tf.random.uniform([8]))
    first, second = strategy.run(draw), strategy.run(draw)
    assert not np.array_equal(first, second)
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--synthetic_data_categories=seed")
    first, second = strategy.run(draw), strategy.run(draw)
    assert np.array_equal(first, second)


def test_parameters_stay_on_either_side(monkeypatch: pytest.MonkeyPatch, strategy: Any) -> None:
    variable = tf.Variable([1.0, 2.0])
    queue = IPUOutfeedQueue()

    def step(x: tf.Tensor) -> tf.Tensor:
        queue.enqueue((x, variable))
        return variable.assign_add(x)

    function = tf.function(step)
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--synthetic_data_categories=parameters --synthetic_data_initializer=5")
    result = strategy.run(function, [tf.constant([1.0, 1.0])])
    assert result.numpy().tolist() == [0, 0]
    assert variable.numpy().tolist() == [1, 2]
    fed, held = queue.dequeue()
    assert (fed.numpy().tolist(), held.numpy().tolist()) == ([[5, 5]], [[5, 5]])
    monkeypatch.undo()
    assert strategy.run(function, [tf.constant([1.0, 1.0])]).numpy().tolist() == [2, 3]
    assert variable.numpy().tolist() == [2, 3]


@pytest.mark.parametrize("text", ["--use_synthetic_data", "--synthetic_data_categories=outfeed"])
def test_keras_gives_zeros(text: str, monkeypatch: pytest.MonkeyPatch, strategy: Any) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", text)
    inputs, targets = np.ones((12, 4), np.float32), np.ones((12, 3), np.float32)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", "mse", metrics=["mae"], steps_per_execution=3)
        before = model.get_weights()
        with device_work() as work:
            history = model.fit(inputs, targets, batch_size=2, epochs=2, verbose=0).history
        assert history == {"loss": [0.0, 0.0], "mae": [0.0, 0.0]}
        assert work.counts.steps == 12
        assert model.evaluate(inputs, targets, batch_size=2, verbose=0) == [0.0, 0.0]
        predictions = model.predict(inputs, batch_size=2, verbose=0)
    assert predictions.shape == (12, 3)
    assert not predictions.any()
    same = all(np.array_equal(old, new) for old, new in zip(before, model.get_weights(), strict=True))
    assert same == (text == "--use_synthetic_data")


shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
dtypes = st.sampled_from([np.float32, np.float16, np.int32, np.uint32, np.int8, np.uint8, np.bool_])


@given(st.lists(st.tuples(shapes, dtypes), max_size=4), st.sampled_from(["random", "uniform", "normal", "0", "-300"]))
@settings(max_examples=80)
def test_arrays_have_their_types_and_repeat(types: list[tuple[Any, Any]], initializer: str) -> None:
    data = parse(f"--use_synthetic_data --synthetic_data_initializer={initializer}").synthetic_data
    wanted = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in types]
    first, second = (synthetic.arrays(wanted, data.initializer) for _ in range(2))
    for array, again, struct in zip(first, second, wanted, strict=True):
        assert (array.shape, array.dtype) == (struct.shape, struct.dtype)
        assert np.array_equal(array, again)
        assert np.isfinite(array).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_random_numbers_are_those_asked_for(dtype: Any) -> None:
    struct = [jax.ShapeDtypeStruct((20000,), np.dtype(dtype))]
    (normal,) = synthetic.arrays(struct, "normal")
    assert abs(normal.astype(np.float64).mean()) < 0.05
    assert abs(normal.astype(np.float64).std() - 1) < 0.05
    (uniform,) = synthetic.arrays(struct, "uniform")
    share = uniform.astype(np.float64) / np.finfo(dtype).max
    assert share.min() < 0.01  # from 0 on
    assert share.max() > 0.99
    assert abs(share.mean() - 0.5) < 0.02


def test_whole_numbers_are_ones_or_anything() -> None:
    struct = [jax.ShapeDtypeStruct((1000,), np.dtype(np.int8))]
    assert synthetic.arrays(struct, "normal")[0].tolist() == [1] * 1000
    (uniform,) = synthetic.arrays(struct, "uniform")
    assert (uniform.min(), uniform.max()) == (-128, 127)
    assert synthetic.arrays(struct, 300)[0].tolist() == [44] * 1000


def test_by_default_nothing_is_synthetic() -> None:
    assert parse("").synthetic_data == SyntheticData()
    assert not any(SyntheticData().uses(category) for category in TransferKind)
