"""Quantised layers whose weights stay packed: the numbers of Keras's own layers.

Runs with Keras on TensorFlow, and by `KERAS_BACKEND=jax pytest` with Keras on JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._ops.packed_product import PackedForm, packed_product
from keras_ipu.generation import packed_layers
from tests.helpers.some_ipus import ipus

# Keras's own conversion of variables is older than NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

INT8, INT4 = keras.quantizers.Int8QuantizationConfig, keras.quantizers.Int4QuantizationConfig
CONFIGS: dict[str, Callable[[], Any]] = {
    "int8": INT8,
    "int8, weights only": lambda: INT8(activation_quantizer=None),
    "int4, by group": lambda: INT4(block_size=32),
    "int4, by column": lambda: INT4(block_size=-1, activation_quantizer=None),
    "int4, by column, inputs too": lambda: INT4(block_size=-1, activation_quantizer=keras.quantizers.AbsMaxQuantizer()),
}
LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...], dict[str, bool]]] = {
    "dense": (lambda: keras.layers.Dense(13, "relu", bias_initializer="normal"), (2, 3, 70), {}),
    "heads": (lambda: keras.layers.EinsumDense("abc,cde->abde", (None, 4, 5), bias_axes="de"), (2, 3, 70), {}),
    "of heads": (lambda: keras.layers.EinsumDense("abde,dec->abc", (None, 9), bias_axes="c"), (2, 3, 5, 14), {}),
    "tied": (lambda: keras.layers.ReversibleEmbedding(41, 70, logit_soft_cap=3.0), (2, 3, 70), {"reverse": True}),
    "untied": (lambda: keras.layers.ReversibleEmbedding(41, 70, tie_weights=False), (2, 3, 70), {"reverse": True}),
}


def on_device(layer: Any, inputs: np.ndarray, strategy: Any, **kwargs: bool) -> np.ndarray:
    """What a layer computes in a program of the device where products are packed."""
    if keras.backend.backend() == "jax":
        with packed_layers.packed_products():
            return np.asarray(layer(inputs, **kwargs))

    @tf.function(jit_compile=True)
    def program(inputs: tf.Tensor) -> tf.Tensor:
        with packed_layers.packed_products():
            return layer(inputs, **kwargs)

    with strategy.scope():
        return strategy.run(program, (tf.constant(inputs),)).numpy()


CASES = [
    *((config, name) for config in ("int8", "int4, by group") for name in LAYERS),
    *((config, name) for config in ("int8, weights only", "int4, by column") for name in ("heads", "tied")),
    *(("int4, by column, inputs too", name) for name in ("dense", "of heads", "tied")),
]


@pytest.mark.parametrize(("config", "name"), CASES)
def test_layers_are_those_of_keras(config: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, shape, kwargs = LAYERS[name]
    products = []
    stock_product = packed_layers._Matrix.product

    def product(self: Any, *args: Any) -> Any:
        products.append(self.form)
        return stock_product(self, *args)

    monkeypatch.setattr(packed_layers._Matrix, "product", product)
    keras.utils.set_random_seed(3)
    inputs = np.random.default_rng(0).standard_normal(shape, np.float32)
    with ipus(1):
        strategy = ipu.ipu_strategy.IPUStrategy()
        with strategy.scope():
            layer = make()
            layer.build(None if kwargs else shape)
        layer.quantize(config[:4], config=CONFIGS[config]())
        expected = keras.ops.convert_to_numpy(layer(inputs, **kwargs))
        assert products == []
        found = on_device(layer, inputs, strategy, **kwargs)
    # Two 4-bit numbers of untied embeddings are neighbours of the other axis: they are left to Keras.
    assert len(products) == (0 if name == "untied" and config.startswith("int4") else 1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [keras.layers.Embedding, keras.layers.ReversibleEmbedding])
@pytest.mark.parametrize("config", [each for each in CONFIGS if each.startswith("int4")])
@pytest.mark.parametrize("width", [70, 13])
def test_rows_of_a_packed_table_are_unpacked_alone(
    make: Any, config: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked = []
    stock_unpack = keras.quantizers.unpack_int4

    def unpack(packed: Any, *args: Any, **kwargs: Any) -> Any:
        unpacked.append(tuple(packed.shape))
        return stock_unpack(packed, *args, **kwargs)

    keras.utils.set_random_seed(3)
    inputs = np.array([[0, 40, 7], [7, 1, 39]], np.int32)
    with ipus(1):
        strategy = ipu.ipu_strategy.IPUStrategy()
        with strategy.scope():
            layer = make(41, width)
            layer.build()
        layer.quantize("int4", config=CONFIGS[config]())
        expected = keras.ops.convert_to_numpy(layer(inputs))
        monkeypatch.setattr(keras.quantizers, "unpack_int4", unpack)
        found = on_device(layer, inputs, strategy)
    assert unpacked == [(2, 3, -(-width // 2))]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=0)


def test_operands_that_do_not_fit_the_form_are_refused() -> None:
    form = PackedForm(4, 6, 8)
    x, weights = np.zeros((2, 4), np.float32), np.zeros((4, 6), np.int8)
    with pytest.raises(TypeError, match="Received: float64"):
        packed_product(x.astype(np.float64), weights, form)
    with pytest.raises(ValueError, match=r"of shape \(4, 6\). Received: \(6, 4\)"):
        packed_product(x, weights.T, form)
    with pytest.raises(ValueError, match="takes 2 operands. Received: 3"):
        packed_product(x, weights, form, x)
