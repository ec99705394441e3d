"""Four replicas on four JAX devices: the processor as four devices, a training step on each, gradients summed."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow reads this once, when it is imported
os.environ.setdefault("KERAS_BACKEND", "jax")  # Keras on JAX: TensorFlow traces nothing
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"

import jax
import keras
import numpy as np

import ipu_tf as ipu

REPLICAS, BATCH, UPDATES = 4, 16, 20


def trained(replicas: int) -> tuple[list[np.ndarray], list[float]]:
    """Trains with so many replicas, 64 samples to an update; returns weights and losses."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = replicas
    cfg.configure_ipu_system()
    x = np.random.default_rng(1).normal(size=(UPDATES * REPLICAS * BATCH, 8)).astype(np.float32)
    y = np.sin(x.sum(axis=1, keepdims=True))
    keras.utils.set_random_seed(1)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(32, activation="tanh"), keras.layers.Dense(1)])
        # Gradients of replicas are summed, so the rate for one is divided by their number.
        model.compile(keras.optimizers.SGD(0.1 / replicas), "mse", steps_per_execution=UPDATES * replicas)
        history = model.fit(x, y, batch_size=BATCH * REPLICAS // replicas, epochs=3, shuffle=False, verbose=0).history
    return [np.asarray(each.value) for each in model.weights], history["loss"]


def main() -> None:
    """Trains with four replicas and with one, and compares."""
    (four, losses), (one, _) = trained(REPLICAS), trained(1)
    difference = max(float(np.abs(a - b).max()) for a, b in zip(four, one, strict=True))
    print(
        f"{REPLICAS} replicas on {len(jax.devices())} JAX devices, losses {', '.join(f'{loss:.4f}' for loss in losses)}"
    )
    print(f"largest difference of a weight from that of one replica with the same samples: {difference:.1e}")


if __name__ == "__main__":
    main()
