"""Names that Keras gives to layers in graphs of TensorFlow 1, under the launcher."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import keras
import pytest
import tensorflow as tf

from ipu_tf._compat.keras_in_graphs import patch_layer_names
from ipu_tf._patches.installation import uninstall


@pytest.fixture(autouse=True)
def patched_names() -> Iterator[None]:
    patch_layer_names(importlib.import_module("keras.src.utils.naming"))
    yield
    uninstall("keras.src.utils.naming:uniquify")


def test_each_graph_has_names_of_its_own() -> None:
    def names() -> list[str]:
        with tf.Graph().as_default():
            found = [keras.layers.Dense(1).name for _ in range(2)]

            @tf.function(autograph=False)
            def inside() -> tf.Tensor:
                found.append(keras.layers.Dense(1).name)
                return tf.constant(0)

            inside()
            return [*found, keras.layers.Dense(1).name, keras.layers.Conv2D(1, 1).name]

    assert names() == names() == ["dense", "dense_1", "dense_2", "dense_3", "conv2d"]


def test_elsewhere_names_are_counted_as_keras_does() -> None:
    keras.utils.clear_session()
    first = keras.layers.Dense(1).name
    with tf.Graph().as_default():
        keras.layers.Dense(1)
    assert [first, keras.layers.Dense(1).name] == ["dense", "dense_1"]
