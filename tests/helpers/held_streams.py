"""Streams of tokens whose loop on the device is held until tests let it go.

Import the fixtures `held` and `strategy`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest

import ipu_tf as ipu
from ipu_tf.device.feeds.outfeed import Outfeed
from tests.helpers.keras_parity import STOCK_JIT
from tests.helpers.some_ipus import ipus

WORDS, LENGTH, GIVEN = 40, 12, 4
MASK = np.tile(np.arange(LENGTH) < GIVEN, (2, 1)).astype(np.int32)
PROMPT = {"token_ids": np.random.default_rng(1).integers(4, WORDS, (2, LENGTH), dtype=np.int32) * MASK}
PROMPT["padding_mask"] = MASK


class Held:
    """A loop on the device, held from its first tokens until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._put, self.let_go = Outfeed.put, threading.Event()
        monkeypatch.setattr(Outfeed, "put", lambda outfeed, *block: self.put(outfeed, *block))

    def put(self, outfeed: Outfeed, *block: Any) -> None:
        self._put(outfeed, *block)
        if outfeed.name.startswith("tokens"):
            assert self.let_go.wait(timeout=60)

    def soon(self) -> None:
        """Lets it go in half a second."""
        timer = threading.Timer(0.5, self.let_go.set)
        timer.daemon = True
        timer.start()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """Holds loops."""
    return Held(monkeypatch)


@pytest.fixture(scope="module")
def strategy() -> Iterator[Any]:
    """A strategy for one IPU."""
    with ipus(1):
        yield ipu.ipu_strategy.IPUStrategy()


def gpt2(scope: contextlib.AbstractContextManager[Any]) -> Any:
    """A tiny GPT-2 of fixed weights, made in a scope."""
    import keras_hub

    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
    keras.utils.set_random_seed(1)
    with scope:
        backbone = keras_hub.models.GPT2Backbone(WORDS, dropout=0.0, max_sequence_length=LENGTH, **sizes)
        model = keras_hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)
    # Larger weights than fresh ones, so that the likeliest words differ from place to place.
    model.set_weights([np.float32(8) * weight for weight in model.get_weights()])
    compile_for(model)
    return model


def compile_for(model: Any, sampler: str = "greedy") -> None:
    """Compiles a model to train, and to generate by a sampler."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, weighted_metrics=[], sampler=sampler, jit_compile=STOCK_JIT)
