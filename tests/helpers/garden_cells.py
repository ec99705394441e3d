"""What a cell of docs/garden.md is: a family of models at a task, and the data that it learns from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tests.helpers.keras_parity import integers

BATCH, BATCHES = 2, 12
SAMPLES = BATCH * BATCHES
WORDS, LENGTH, CLASSES = 30, 8, 3
TASKS = (
    *("masked LM", "causal LM", "sequence to sequence", "sequence classification", "token classification"),
    *("question answering", "multiple choice", "image classification"),
)
LAYERS = {"num_layers": 2, "hidden_dim": 8, "intermediate_dim": 16}
HEADS = {**LAYERS, "num_heads": 2}
PLACES = {"max_sequence_length": LENGTH}


@dataclasses.dataclass(frozen=True)
class Data:
    """What a model learns from: inputs and targets of `SAMPLES` samples."""

    x: Any
    y: np.ndarray


@dataclasses.dataclass(frozen=True)
class Cell:
    """A family of models at a task.

    Attributes:
        family: its name.
        task: one of `TASKS`.
        build: makes the model.
        data: makes what it learns from.
        shared: whether a layer of the first stage, that of the tokens, is in the last one too; both are on one IPU.
        source: "hub" or "garden": where the task's model comes from.
    """

    family: str
    task: str
    build: Callable[[], keras.Model]
    data: Callable[[], Data]
    shared: bool = False
    source: str = "hub"

    @property
    def name(self) -> str:
        """Family and task."""
        return f"{self.family}: {self.task}"

    @property
    def stages(self) -> int:
        """Its stages on two IPUs."""
        return 3 if self.shared else 2

    @property
    def micro_batches(self) -> int:
        """Micro-batches of an update: as many as fill its pipeline."""
        return 2 * self.stages


def hub() -> Any:
    """KerasHub's models; it takes seconds to import."""
    import keras_hub

    return keras_hub.models


def text(*shape: int, segments: bool = False, prefix: str = "") -> dict[str, np.ndarray]:
    """Texts of random words, with masks of random lengths, as KerasHub's backbones take them.

    Args:
        *shape: of a sample; by default `LENGTH`.
        segments: whether there are segments too.
        prefix: of the names.
    """
    shape = shape or (LENGTH,)
    lengths = integers(LENGTH, SAMPLES, *shape[:-1], 1, seed=2) + 1
    x = {
        f"{prefix}token_ids": integers(WORDS, SAMPLES, *shape),
        f"{prefix}padding_mask": (np.arange(LENGTH) < lengths).astype(np.int32),
    }
    return {**x, "segment_ids": integers(2, SAMPLES, *shape, seed=3)} if segments else x
