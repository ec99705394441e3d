"""The workloads in Keras: on the emulated IPU, on stock TensorFlow, on stock JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

import ipu_tf as ipu
from benchmarks.workload import CLASSES, Workload, random_batches

Run = Callable[[], float]
"""Trains for the steps of a round and gives the loss."""


def on_ipu(workload: Workload) -> Run:
    """This project: the epoch is one execution of the device."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        return stock(workload, steps_per_execution=workload.steps)


def stock(workload: Workload, **compile_arguments: Any) -> Run:
    """Keras by itself, on the backend that KERAS_BACKEND names."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input(workload.shape), *LAYERS[workload.name]()])
    model.compile(
        loss="categorical_crossentropy",
        optimizer=OPTIMIZERS[workload.name](),
        metrics=["accuracy"],
        **compile_arguments,
    )
    data = dataset(workload)
    return lambda: float(model.fit(data, verbose=0, shuffle=False).history["loss"][-1])


def dataset(workload: Workload) -> tf.data.Dataset:
    """An epoch of `workload.steps` batches."""
    images, labels = (array.reshape(-1, *array.shape[2:]) for array in random_batches(workload))
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(workload.batch, drop_remainder=True)
    return batches.repeat(workload.steps // workload.batches)


def cnn_layers() -> list[Any]:
    """The reference network of issue 2, for CIFAR-10."""
    layers = keras.layers
    return [
        layers.Conv2D(32, (3, 3), padding="same"),
        layers.Activation("relu"),
        layers.Conv2D(32, (3, 3)),
        layers.Activation("relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Dropout(0.25),
        layers.Conv2D(64, (3, 3), padding="same"),
        layers.Activation("relu"),
        layers.Conv2D(32, (3, 3)),
        layers.Activation("relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Dropout(0.25),
        layers.Flatten(),
        layers.Dense(512),
        layers.Activation("relu"),
        layers.Dropout(0.5),
        layers.Dense(CLASSES),
        layers.Activation("softmax"),
    ]


def dense_layers() -> list[Any]:
    """One hidden layer."""
    return [keras.layers.Dense(128, activation="relu"), keras.layers.Dense(CLASSES, activation="softmax")]


LAYERS: dict[str, Callable[[], list[Any]]] = {"cnn": cnn_layers, "dense": dense_layers}
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "cnn": lambda: keras.optimizers.SGD(learning_rate=0.016),
    "dense": lambda: keras.optimizers.Adam(),
}
