"""Sparse gradients (`tf.IndexedSlices`): the warning in the log, and user code that applies them itself."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_tf.emulation import clear_session
from tests.helpers.keras_updates import BATCH, data, embedding, tied, with_dense_gradients
from tests.helpers.some_ipus import ipus

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.mark.parametrize(
    ("make", "build", "told"),
    [
        (lambda: keras.optimizers.Adam(0.01), embedding, "before Adam:"),
        (lambda: keras.optimizers.SGD(0.01, clipvalue=0.1), embedding, "before SGD and clipvalue:"),
        (lambda: keras.optimizers.SGD(0.01, momentum=0.9), embedding, ""),
        (lambda: keras.optimizers.Adam(0.01), tied, ""),
    ],
)
def test_it_is_said_once_where_stock_keras_differs(
    make: Any, build: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    clear_session()
    with ipus(1) as strategy, strategy.scope(), caplog.at_level("INFO", logger="ipu_tf"):
        model = build()
        model.compile(make(), LOSS)
        for batch in (BATCH, 2 * BATCH):
            model.fit(*data(), batch, verbose=0)
    assert caplog.text.count("that a batch names several times are added up") == bool(told)
    assert told in caplog.text


def test_a_loop_of_the_users_own_sums_rows_too() -> None:
    x, y = (tf.constant(each[:24]) for each in data())

    def trained(on_device: bool) -> list[np.ndarray]:
        keras.utils.set_random_seed(1)
        model, optimizer = embedding(), keras.optimizers.Adam(0.01, clipnorm=0.1)
        optimizer.build(model.trainable_variables)
        optimizer = optimizer if on_device else with_dense_gradients(optimizer)

        @tf.function
        def step() -> None:
            with tf.GradientTape() as tape:
                loss = LOSS(y, model(x))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        for _ in range(4):
            tf.distribute.get_strategy().run(step) if on_device else step()
        return [weight.numpy() for weight in model.weights]

    with ipus(1) as strategy, strategy.scope():
        found = trained(on_device=True)
    for got, wanted in zip(found, trained(on_device=False), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-7)
