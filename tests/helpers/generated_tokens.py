"""Tiny language models of KerasHub's, samplers and prompts, and a check that tokens are those of stock KerasHub."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import ipu_tf as ipu
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

WORDS, LENGTH = 40, 12
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}


def _hub() -> Any:
    """KerasHub, which takes seconds to import."""
    import keras_hub

    return keras_hub


SAMPLERS: dict[str, Callable[[], Any]] = {
    "greedy": lambda: _hub().samplers.GreedySampler(),
    "random": lambda: _hub().samplers.RandomSampler(temperature=0.7, seed=5),
    "top k": lambda: _hub().samplers.TopKSampler(k=4, seed=5),
    "top p": lambda: _hub().samplers.TopPSampler(p=0.8, seed=5),
    "beam": lambda: _hub().samplers.BeamSampler(num_beams=3),
    "contrastive": lambda: _hub().samplers.ContrastiveSampler(k=3, alpha=0.3),
}


def gpt2() -> Any:
    """A decoder."""
    backbone = _hub().models.GPT2Backbone(WORDS, dropout=0.0, max_sequence_length=LENGTH, **SIZES)
    return _hub().models.GPT2CausalLM(backbone=backbone, preprocessor=None)


def llama() -> Any:
    """A decoder whose heads share keys and values."""
    sizes = {**SIZES, "num_query_heads": 2, "num_key_value_heads": 1}
    del sizes["num_heads"]
    backbone = _hub().models.LlamaBackbone(WORDS, **sizes)
    return _hub().models.LlamaCausalLM(backbone=backbone, preprocessor=None)


def bart() -> Any:
    """An encoder with a decoder."""
    backbone = _hub().models.BartBackbone(WORDS, dropout=0.0, max_sequence_length=LENGTH, **SIZES)
    return _hub().models.BartSeq2SeqLM(backbone=backbone, preprocessor=None)


def t5() -> Any:
    """An encoder with a decoder, with relative positions."""
    backbone = _hub().models.T5Backbone(WORDS, dropout=0.0, **SIZES)
    return _hub().models.T5Seq2SeqLM(backbone=backbone, preprocessor=None)


def prompts(*lengths: int, length: int = LENGTH, name: str = "") -> dict[str, np.ndarray]:
    """Returns prompts of some lengths, of random words, padded to the length of a sequence."""
    words = np.random.default_rng(sum(lengths)).integers(4, WORDS, (len(lengths), length), dtype=np.int32)
    mask = (np.arange(length) < np.array(lengths)[:, None]).astype(np.int32)
    return {f"{name}token_ids": words * mask, f"{name}padding_mask": mask}


def pair(make: Callable[[], Any], strategy: Any) -> tuple[Any, Any]:
    """Returns a model of stock KerasHub and one of the scope, with equal weights."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    stock = make()
    # Larger weights than fresh ones, so that the likeliest words differ from place to place.
    stock.set_weights([np.float32(8) * weight for weight in stock.get_weights()])
    with strategy.scope():
        ours = make()
    ours.set_weights(stock.get_weights())
    return stock, ours


def _generated(model: Any, sampler: Callable[[], Any], inputs: Any, scope: Any, stops: Any) -> list[np.ndarray]:
    with scope:
        model.compile(sampler=sampler())
        outputs = [model.generate(dict(inputs), stop_token_ids=each) for each in (stops, stops)]
    return [values for each in outputs for values in each.values()]


def check_tokens(
    make: Callable[[], Any],
    sampler: str,
    inputs: Any,
    stops: Any = None,
    num_ipus: int = 1,
    change: Callable[[Any], None] = lambda model: None,
) -> None:
    """Checks that a model generates the tokens of stock KerasHub, twice by one program, an execution a call.

    Args:
        make: makes the model.
        sampler: by its name in `SAMPLERS`.
        inputs: the prompts.
        stops: tokens at which a sequence ends.
        num_ipus: so many replicas generate.
        change: what is done to the models before.
    """
    with ipus(num_ipus):
        strategy = ipu.ipu_strategy.IPUStrategy()
        stock, ours = pair(make, strategy)
        change(stock)
        with strategy.scope():
            change(ours)
        expected = _generated(stock, SAMPLERS[sampler], inputs, contextlib.nullcontext(), stops)
        with device_work() as did:
            tokens = _generated(ours, SAMPLERS[sampler], inputs, strategy.scope(), stops)
    assert (did.counts.executions, did.counts.programs) == (2, 1)
    assert [each.tolist() for each in tokens] == [each.tolist() for each in expected]
