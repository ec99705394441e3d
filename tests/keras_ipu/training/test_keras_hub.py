"""KerasHub's BERT and GPT-2, tiny and with random weights, train in micro-batches as stock Keras does on whole batches.

An optional extra: `pip install --editable '.[hub]'`. The tests are left out where KerasHub is not installed.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_ipu.parity.report import difference
from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import integers, ipu_scope
from tests.helpers.some_ipus import ipus

keras_hub = pytest.importorskip("keras_hub", reason="KerasHub is not installed: pip install keras-hub")

# Its own imports are older than the packages that it imports.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

BATCH, MICRO_BATCHES, UPDATES, EPOCHS = 2, 4, 3, 2
SAMPLES = BATCH * MICRO_BATCHES * UPDATES
WORDS, LENGTH, CLASSES = 30, 8, 3
RTOL = 1e-5
IDS = integers(WORDS, SAMPLES, LENGTH)
MASK = (np.arange(LENGTH) < integers(LENGTH, SAMPLES, 1, seed=2) + 1).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class Task:
    """A model of KerasHub's and what it learns from."""

    make: Callable[[], keras.Model]
    x: dict[str, np.ndarray]
    y: np.ndarray


def bert() -> keras.Model:
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
    backbone = keras_hub.models.BertBackbone(WORDS, dropout=0.0, max_sequence_length=LENGTH, **sizes)
    return keras_hub.models.BertTextClassifier(backbone, num_classes=CLASSES, preprocessor=None, dropout=0.0)


def gpt2() -> keras.Model:
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
    backbone = keras_hub.models.GPT2Backbone(WORDS, dropout=0.0, max_sequence_length=LENGTH, **sizes)
    return keras_hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)


TASKS = {
    "BERT": Task(
        bert,
        {"token_ids": IDS, "segment_ids": integers(2, SAMPLES, LENGTH, seed=3), "padding_mask": MASK},
        integers(CLASSES, SAMPLES, seed=4),
    ),
    "GPT-2": Task(gpt2, {"token_ids": IDS, "padding_mask": MASK}, np.roll(IDS, -1, axis=1)),
}


def trained(task: Task, scope: contextlib.AbstractContextManager[Any], micro_batches: int) -> dict[str, np.ndarray]:
    """Returns losses, weights and predictions after a few updates of as many samples each."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    with scope:
        model = task.make()
        if micro_batches > 1:
            model.set_gradient_accumulation_options(
                gradient_accumulation_steps_per_replica=micro_batches, gradient_accumulation_reduction_method="mean"
            )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        # KerasHub would have Keras compile for XLA by itself.
        model.compile(optimizer, loss, steps_per_execution=micro_batches, jit_compile=False)
        # Of arrays KerasHub's `fit` would make batches of no fixed size, which the device refuses.
        data = tf.data.Dataset.from_tensor_slices((task.x, task.y))
        data = data.batch(BATCH * MICRO_BATCHES // micro_batches, drop_remainder=True)
        losses = model.fit(data, epochs=EPOCHS, shuffle=False, verbose=0).history["loss"]
        found = {f"{place} {weight.path}": weight.numpy() for place, weight in enumerate(model.weights)}
        predicted = model.predict(data.map(lambda x, y: x), verbose=0)
    return {**found, "loss": np.array(losses), "predictions": predicted}


@pytest.mark.parametrize("name", [pytest.param("BERT", marks=pytest.mark.slow), "GPT-2"])
def test_accumulating_gives_the_numbers_of_whole_batches(name: str) -> None:
    with ipus(1), device_work() as work:
        found = trained(TASKS[name], ipu_scope(), MICRO_BATCHES)
    assert work.counts.steps == (EPOCHS + 1) * SAMPLES // BATCH
    wanted = trained(TASKS[name], contextlib.nullcontext(), 1)
    assert list(found) == list(wanted)
    gaps = [difference(each, found[each], wanted[each]) for each in wanted]
    assert [gap for gap in gaps if not gap.within(RTOL, 1e-8)] == []
    assert len(gaps) > 20
