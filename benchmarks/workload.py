"""What is trained in the measurements: two models, and random data for them."""

from __future__ import annotations

import dataclasses

import numpy as np

CLASSES = 10


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model to train.

    Attributes:
        name: what the command line calls it.
        title: what the table calls it.
        shape: of one image.
        batch: images in a step.
        batches: different batches there are; a round goes through them again and again.
        steps: steps of a round; a multiple of `batches`.
        scan_steps: the same for the hand-written `lax.scan`, which XLA makes very slow on a CPU if there are
            convolutions in it: seconds a step.
    """

    name: str
    title: str
    shape: tuple[int, ...]
    batch: int
    batches: int
    steps: int
    scan_steps: int

    def with_steps(self, steps: int) -> Workload:
        """The same with about as many steps a round: rounded up to whole passes over the batches."""
        batches = min(self.batches, steps)
        return dataclasses.replace(
            self,
            batches=batches,
            steps=-(-steps // batches) * batches,
            scan_steps=batches if self.scan_steps < self.steps else -(-steps // batches) * batches,
        )


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("cnn", "CIFAR-10 CNN, batch 64, SGD", (32, 32, 3), 64, batches=4, steps=16, scan_steps=4),
        Workload("dense", "dense 784-128-10, batch 32, Adam", (784,), 32, batches=100, steps=2000, scan_steps=2000),
    )
}


def random_batches(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    """Images float32 `[batches, batch, *shape]` from 0 to 1, and one-hot labels float32 `[batches, batch, 10]`."""
    random = np.random.default_rng(0)
    leading = (workload.batches, workload.batch)
    images = random.random((*leading, *workload.shape), np.float32)
    return images, np.eye(CLASSES, dtype=np.float32)[random.integers(0, CLASSES, leading)]
