"""Sparse data in fit, evaluate and predict is computed as stock Keras does; ragged data is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import scipy.sparse  # type: ignore[import-untyped]
import tensorflow as tf

from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import TIGHT, numbers
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]

BATCH = 8
X = np.maximum(numbers(16, 6), 0)
Y = numbers(16, 1)

DATA: dict[str, Callable[[], Any]] = {
    "scipy coo": lambda: scipy.sparse.coo_matrix(X),
    "scipy csr": lambda: scipy.sparse.csr_matrix(X),
    "tf.SparseTensor": lambda: tf.sparse.from_dense(X),
}


def _trained(data: Callable[[], Any], declared: bool) -> list[Any]:
    inputs = keras.Input((6,), sparse=declared)
    kernel = keras.initializers.RandomNormal(seed=1)
    model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer=kernel)(inputs))
    model.compile("sgd", "mse")
    seen = model.fit(data(), Y, BATCH, verbose=0, shuffle=False, validation_data=(data(), Y)).history
    return [seen["loss"], seen["val_loss"], model.evaluate(data(), Y, BATCH, verbose=0), model.predict(data(), BATCH)]


@pytest.mark.parametrize("declared", [False, True], ids=["dense input", "sparse input"])
@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
def test_sparse_data_is_computed_as_stock_keras_does(strategy: Any, data: Callable[[], Any], declared: bool) -> None:
    with strategy.scope(), device_work() as work:
        ours = _trained(data, declared)
    assert work.counts.steps == 8
    for got, wanted in zip(ours, _trained(data, declared), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=TIGHT, atol=TIGHT)


def test_datasets_of_sparse_tensors(strategy: Any) -> None:
    def predicted() -> np.ndarray:
        kernel = keras.initializers.RandomNormal(seed=1)
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1, kernel_initializer=kernel)])
        data = tf.data.Dataset.from_tensor_slices(tf.sparse.from_dense(X)).batch(BATCH, drop_remainder=True)
        return model.predict(data, verbose=0)

    with strategy.scope(), device_work() as work:
        ours = predicted()
    assert work.counts.steps == 2
    np.testing.assert_allclose(ours, predicted(), rtol=TIGHT, atol=TIGHT)


def test_inputs_of_a_dataset_that_has_nothing_else(strategy: Any) -> None:
    """Its elements are tuples of one part, which is a tuple."""

    def predicted() -> np.ndarray:
        first, second = keras.Input((6,)), keras.Input((2,))
        kernel = keras.initializers.RandomNormal(seed=1)
        joined = keras.layers.Concatenate()([first, second])
        model = keras.Model([first, second], keras.layers.Dense(1, kernel_initializer=kernel)(joined))
        data = tf.data.Dataset.from_tensor_slices(((tf.sparse.from_dense(X), X[:, :2]),)).batch(BATCH)
        return model.predict(data, verbose=0)

    with strategy.scope(), device_work() as work:
        ours = predicted()
    assert work.counts.steps == 2
    np.testing.assert_allclose(ours, predicted(), rtol=TIGHT, atol=TIGHT)


class Matrices(keras.utils.PyDataset):
    """Batches of sparse matrices, the last one smaller."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[Any, np.ndarray]:
        rows = slice(index * 6, (index + 1) * 6)
        return tf.sparse.from_dense(X[rows]), Y[rows]


def matrices() -> Iterator[tuple[Any, np.ndarray]]:
    """The same, of SciPy's, which Keras on TensorFlow takes from a generator alone."""
    return ((scipy.sparse.csr_matrix(X[first : first + 6]), Y[first : first + 6]) for first in (0, 6, 12))


@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
@pytest.mark.parametrize("data", [Matrices, matrices])
def test_batches_that_users_make_may_be_sparse(strategy: Any, data: Callable[[], Any]) -> None:
    def trained(batch: Any) -> list[Any]:
        kernel = keras.initializers.RandomNormal(seed=1)
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1, kernel_initializer=kernel)])
        model.compile("sgd", "mse")
        loss = model.fit(data(), shuffle=False, verbose=0).history["loss"]
        seen = [model.train_on_batch(batch, Y[:5]), model.test_on_batch(x=batch, y=Y[:5])]
        return [loss, *seen, model.predict_on_batch(batch), *model.get_weights()]

    with strategy.scope(), device_work() as work:
        ours = trained(scipy.sparse.coo_matrix(X[:5]))
    assert work.counts.steps == 6
    for got, wanted in zip(ours, trained(X[:5]), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=TIGHT, atol=TIGHT)


@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
@pytest.mark.parametrize("data", [Matrices, matrices])
def test_eager_steps_take_sparse_batches(strategy: Any, data: Callable[[], Any]) -> None:
    class Subclassed(keras.Model):
        """Passes batches on as they come, which functional models do not."""

        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1, kernel_initializer=keras.initializers.RandomNormal(seed=1))

        def call(self, x: Any) -> Any:
            return self.dense(x)

    def trained() -> list[Any]:
        model = Subclassed()
        model.compile("sgd", "mse", run_eagerly=True)
        loss = model.fit(data(), shuffle=False, verbose=0).history["loss"]
        return [loss, model.evaluate(data(), verbose=0), *model.get_weights()]

    with strategy.scope(), device_work() as work:
        ours = trained()
    assert work.counts.executions >= 6
    for got, wanted in zip(ours, trained(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=TIGHT, atol=TIGHT)


def test_no_more_than_a_batch_is_made_dense(strategy: Any) -> None:
    rows, columns = np.arange(9), np.arange(9) * 1000
    large = scipy.sparse.coo_matrix((np.ones(9, np.float32), (rows, columns)), (3_000_000, 10_000))  # dense: 120 GB
    with strategy.scope(), device_work() as work:
        model = keras.Sequential([keras.Input((10_000,)), keras.layers.Dense(1, kernel_initializer="ones")])
        found = model.predict(large.tocsr(), batch_size=BATCH, steps=2, verbose=0)
    assert work.counts.steps == 2
    np.testing.assert_array_equal(found.ravel(), [1.0] * 9 + [0.0] * 7)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="Keras on JAX pads ragged data itself")
def test_batches_that_are_ragged_are_refused(strategy: Any) -> None:
    def batches() -> Iterator[Any]:
        yield tf.ragged.constant([[1.0, 2.0], [3.0]]), np.ones((2, 1))

    with strategy.scope():
        model = keras.Sequential([keras.Input((None,)), keras.layers.Activation("relu")])
        model.compile("sgd", "mse")
        with pytest.raises(ValueError, match=r"fed rows of one length. Received: batches with RaggedTensorSpec"):
            model.fit(batches(), shuffle=False, verbose=0)
        with pytest.raises(ValueError, match=r"Received: a tf.RaggedTensor of shape \(2, None\)"):
            model.predict_on_batch(tf.ragged.constant([[1.0, 2.0], [3.0]]))


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="Keras on JAX pads ragged data itself")
def test_ragged_data_is_refused(strategy: Any) -> None:
    ragged = tf.ragged.constant([[1.0, 2.0], [3.0]])
    with strategy.scope():
        model = keras.Sequential([keras.Input((None,)), keras.layers.Activation("relu")])
        with pytest.raises(ValueError, match=r"Received: a tf.RaggedTensor of shape \(2, None\). Pass `x.to_tensor"):
            model.predict(ragged, verbose=0)
        model.predict(ragged.to_tensor(), batch_size=2, verbose=0)
