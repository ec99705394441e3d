"""Optimizers' variables begin with zeros of the host's memory: no program for each shape, with KERAS_BACKEND=jax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from keras import layers

from keras_ipu.stock.arrays import zeros_from_host
from tests.helpers.keras_parity import integers, numbers
from tests.helpers.some_ipus import ipus

SIZES = (13, 29, 31)
X, Y = numbers(8, 11), integers(5, 8)


def fitted(programs: list[str]) -> keras.Model:
    model = keras.Sequential([*(layers.Dense(size, "relu") for size in SIZES), layers.Dense(5)])
    model.build((None, 11))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    programs.clear()
    model.fit(X, Y, batch_size=4, shuffle=False, verbose=0)
    return model


def zeros_among(programs: list[str]) -> list[str]:
    return [name for name in programs if "broadcast_in_dim" in name]


def test_no_program_makes_an_optimizers_zeros() -> None:
    compiled: list[str] = []

    def listen(event: str, duration_secs: float, **about: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(str(about.get("fun_name", "")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        keras.utils.set_random_seed(3)
        with ipus(1) as strategy, strategy.scope():
            ours = fitted(compiled)
        assert not zeros_among(compiled), compiled
        keras.utils.set_random_seed(3)
        stock = fitted(compiled)
        assert zeros_among(compiled), "stock Keras compiles no zeros any more: `zeros_from_host` can go"
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    for one, other in zip(ours.optimizer.variables, stock.optimizer.variables, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(np.asarray(one.value), np.asarray(other.value), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "bool", None])
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 5)])
def test_they_are_jaxs_zeros(dtype: str | None, shape: tuple[int, ...]) -> None:
    with zeros_from_host():
        made = keras.ops.zeros(shape, dtype)
    expected = jnp.zeros(shape, dtype or "float32")
    assert isinstance(made, jax.Array)
    assert (made.aval, made.sharding, made.committed) == (expected.aval, expected.sharding, expected.committed)
    np.testing.assert_array_equal(np.asarray(made), np.asarray(expected))
