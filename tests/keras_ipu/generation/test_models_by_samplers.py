"""Tokens of KerasHub's models by samplers by prompts of any length: those of stock KerasHub, one execution a call.

An optional extra: `pip install --editable '.[hub]'`. `KERAS_BACKEND=jax pytest` runs it with Keras on JAX: with top k
too, whose candidates TensorFlow's kernel gives in an order of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.generated_tokens import LENGTH, SAMPLERS, bart, check_tokens, gpt2, llama, prompts, t5

pytest.importorskip("keras_hub", reason="KerasHub is not installed: pip install keras-hub")

# Its own imports are older than the packages that it imports.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # T5's attention has no use for masks.
    pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask attached to it:UserWarning"),
]

MODELS: dict[str, Callable[[], Any]] = {"gpt2": gpt2, "llama": llama, "bart": bart, "t5": t5}
WITH_ENCODER = ("bart", "t5")
READ = 8
EQUAL = [name for name in SAMPLERS if name != "top k" or keras.backend.backend() == "jax"]
"""Samplers that draw the tokens of stock KerasHub."""
IN_CI = (("llama", "greedy"), ("llama", "random"), ("bart", "greedy"))


def prompts_of(model: str, lengths: list[int]) -> dict[str, np.ndarray]:
    """Returns prompts of these lengths; of an encoder with a decoder, both have them, and the encoder fewer places."""
    if model not in WITH_ENCODER:
        return prompts(*lengths)
    read = [min(length, READ) for length in lengths]
    return prompts(*read, length=READ, name="encoder_") | prompts(*lengths, name="decoder_")


@pytest.mark.parametrize(
    ("model", "sampler"),
    [
        pytest.param(model, sampler, marks=() if (model, sampler) in IN_CI else pytest.mark.slow)
        for model in MODELS
        for sampler in EQUAL
    ],
)
def test_a_model_by_a_sampler(model: str, sampler: str) -> None:
    check_tokens(MODELS[model], sampler, prompts_of(model, [2, 5, 3]), stops=(3, 7))


LENGTHS = st.lists(st.integers(1, LENGTH - 1), min_size=1, max_size=3)


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(lengths=LENGTHS, sampler=st.sampled_from(["greedy", "random", "beam"]))
def test_prompts_of_any_length(lengths: list[int], sampler: str) -> None:
    check_tokens(gpt2, sampler, prompts(*lengths), stops=(3,))


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    model=st.sampled_from([*MODELS]),
    sampler=st.sampled_from(EQUAL),
    lengths=LENGTHS,
    stops=st.sampled_from([None, (3,), (3, 7)]),
)
def test_prompts_of_any_length_by_models_by_samplers(model: str, sampler: str, lengths: list[int], stops: Any) -> None:
    check_tokens(MODELS[model], sampler, prompts_of(model, lengths), stops=stops)
