"""Benchmark workloads: models by name, their goals, and random data for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

CLASSES = 10
MOBILENET_BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1))
"""Width and stride of each block of the depthwise network."""

TENSORFLOW, KERAS_JAX = "stock Keras on TensorFlow", "stock Keras on JAX"
BY_HAND = "hand-written JAX"
FAMILIES = (TENSORFLOW, KERAS_JAX, BY_HAND)


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model to train.

    Attributes:
        name: what the command line calls it.
        title: what the table calls it.
        model: the network, in `keras_models` and `jax_models`; or one of `keras.applications`.
        shape: of one sample: an image's, or how many tokens.
        batch: samples in a step.
        batches: different batches there are; a round goes through them again and again.
        steps: steps of a round; a multiple of `batches`.
        scan_steps: the same for the hand-written `lax.scan`, which XLA makes very slow on a CPU if there are
            convolutions in it: seconds a step.
        optimizer: "adam" or "sgd".
        vocabulary: how many tokens there are; 0 if samples are images.
        goals: for each family of contenders, what part of its best time ours is to take at most.
        data: what Keras is given: "arrays", as most scripts do, or a tf.data "dataset" of their batches.
    """

    name: str
    title: str
    model: str
    shape: tuple[int, ...]
    batch: int
    batches: int
    steps: int
    scan_steps: int
    optimizer: str = "adam"
    vocabulary: int = 0
    goals: Mapping[str, float] = dataclasses.field(default_factory=dict)
    data: str = "arrays"

    @property
    def by_hand(self) -> bool:
        """Whether it is written in JAX by hand too."""
        return BY_HAND in self.goals

    def with_steps(self, steps: int) -> Workload:
        """Returns the workload with about this many steps a round, rounded up to whole passes over the batches."""
        batches = min(self.batches, steps)
        return dataclasses.replace(
            self,
            batches=batches,
            steps=-(-steps // batches) * batches,
            scan_steps=batches if self.scan_steps < self.steps else -(-steps // batches) * batches,
        )


def _goals(tensorflow: float, keras_jax: float, by_hand: float) -> dict[str, float]:
    return dict(zip(FAMILIES, (tensorflow, keras_jax, by_hand), strict=True))


_CNN = "CIFAR-10 CNN, SGD, batch"
_TOKENS: dict[str, Any] = {"batches": 4, "vocabulary": 5000}
_IMAGES: dict[str, Any] = {"shape": (32, 32, 3), "batches": 4, "scan_steps": 4, "optimizer": "sgd"}


def _application(model: str, tensorflow: float, keras_jax: float) -> Workload:
    """A network of `keras.applications`, which nobody writes by hand."""
    goals = {TENSORFLOW: tensorflow, KERAS_JAX: keras_jax}
    return Workload(
        model.lower(), f"{model} on 96x96, SGD, batch 16", model, (96, 96, 3), 16, 4, 8, 4, "sgd", goals=goals
    )


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            *("small", "dense 64-64-10, batch 32, Adam", "small", (64,), 32),
            *(100, 4000, 4000),
            goals=_goals(0.1, 0.3, 1.05),
        ),
        Workload(
            *("dense", "dense 784-128-10, batch 32, Adam", "dense", (784,), 32),
            *(100, 2000, 2000),
            goals=_goals(0.3, 0.8, 1.0),
        ),
        Workload("cnn", f"{_CNN} 64", "cnn", batch=64, steps=16, goals=_goals(0.85, 0.2, 0.2), **_IMAGES),
        Workload("cnn8", f"{_CNN} 8", "cnn", batch=8, steps=64, goals=_goals(0.65, 0.4, 0.4), **_IMAGES),
        Workload(
            *("resnet", "ResNet-20 on 32x32, SGD, batch 32", "resnet"),
            **(_IMAGES | {"batch": 32, "steps": 8, "goals": _goals(0.7, 0.45, 0.45)}),
        ),
        Workload(
            *("mobilenet", "depthwise network on 32x32, SGD, batch 32", "mobilenet"),
            **(_IMAGES | {"batch": 32, "steps": 8, "goals": _goals(0.5, 0.08, 0.08)}),
        ),
        _application("MobileNetV2", 0.5, 0.1),
        _application("EfficientNetB0", 0.7, 0.15),
        _application("ResNet50", 0.85, 0.25),
        Workload(
            *("lstm", "LSTM(64) on 80 tokens, batch 32, Adam", "lstm", (80,), 32),
            **(_TOKENS | {"steps": 64, "scan_steps": 64, "goals": _goals(0.45, 0.75, 0.8)}),
        ),
        Workload(
            *("transformer", "transformer, 4 layers of 256, 128 tokens, batch 8, Adam", "transformer", (128,), 8),
            **(_TOKENS | {"steps": 8, "scan_steps": 8, "goals": _goals(0.85, 0.5, 0.7)}),
        ),
    )
}


def random_batches(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    """Samples `[batches, batch, *shape]`, float32 from 0 to 1 or int32 tokens, and their labels, one-hot."""
    random = np.random.default_rng(0)
    leading = (workload.batches, workload.batch)
    size = (*leading, *workload.shape)
    tokens = workload.vocabulary
    samples = random.integers(0, tokens, size, np.int32) if tokens else random.random(size, np.float32)
    return samples, np.eye(CLASSES, dtype=np.float32)[random.integers(0, CLASSES, leading)]
