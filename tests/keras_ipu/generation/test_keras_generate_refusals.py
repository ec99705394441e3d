"""Prompts, stop tokens, samplers and presets that `generate` refuses: errors before anything is traced.

An optional extra: `pip install --editable '.[hub]'`. `KERAS_BACKEND=jax pytest` runs it with Keras on JAX.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import ipu_tf as ipu
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

keras_hub = pytest.importorskip("keras_hub", reason="KerasHub is not installed: pip install keras-hub")

# Its own imports are older than the packages that it imports.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # Keras says so of each layer without weights.
    pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method:UserWarning"),
]

WORDS, PLACES = 40, 12
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 8, "max_sequence_length": PLACES}


def gpt2() -> Any:
    backbone = keras_hub.models.GPT2Backbone(WORDS, **SIZES)
    return keras_hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)


@pytest.fixture(scope="module", autouse=True)
def strategy() -> Iterator[Any]:
    with ipus(1):
        yield ipu.ipu_strategy.IPUStrategy()


@pytest.fixture(scope="module")
def model(strategy: Any) -> Any:
    with strategy.scope():
        made = gpt2()
    made.compile(sampler="greedy")
    return made


def prompt(length: int = PLACES, given: int = 3) -> dict[str, np.ndarray]:
    mask = np.tile(np.arange(length) < given, (2, 1)).astype(np.int32)
    return {"token_ids": 5 * mask, "padding_mask": mask}


def _without_mask(inputs: dict[str, np.ndarray]) -> None:
    del inputs["padding_mask"]


def _without_tokens(inputs: dict[str, np.ndarray]) -> None:
    del inputs["token_ids"]


def _shorter_mask(inputs: dict[str, np.ndarray]) -> None:
    inputs["padding_mask"] = inputs["padding_mask"][:, :8]


def _one_axis(inputs: dict[str, np.ndarray]) -> None:
    inputs.update({name: array[0] for name, array in inputs.items()})


def _no_prompts(inputs: dict[str, np.ndarray]) -> None:
    inputs.update({name: array[:0] for name, array in inputs.items()})


def _unknown_word(inputs: dict[str, np.ndarray]) -> None:
    inputs["token_ids"][1, 2] = WORDS


def _before_the_first_word(inputs: dict[str, np.ndarray]) -> None:
    inputs["token_ids"][1, 2] = -WORDS - 1


def _empty(inputs: dict[str, np.ndarray]) -> None:
    inputs["padding_mask"][1] = 0


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_without_mask, r"Received: \['token_ids'\], no \['padding_mask'\]"),
        (_without_tokens, r"Received: \['padding_mask'\], no \['token_ids'\]"),
        (_shorter_mask, r"of one shape.*Received: shapes \(2, 12\) and \(2, 8\)"),
        (_one_axis, r"\[batch, length\]. Received: shapes \(12,\)"),
        (_no_prompts, r"Received: shapes \(0, 12\)"),
        (_unknown_word, "below 40, its vocabulary's size. Received: 40"),
        (_before_the_first_word, "from -40, as negative ones count from the end, .* Received: -41"),
        (_empty, r"at least one token.*Received: none in prompts \[1\]"),
    ],
)
def test_prompts(model: Any, spoil: Any, message: str) -> None:
    inputs = prompt()
    spoil(inputs)
    with device_work() as did, pytest.raises(ValueError, match=message):
        model.generate(inputs, stop_token_ids=None)
    assert did.counts.programs == 0


def test_prompts_that_are_no_dictionary(model: Any) -> None:
    with pytest.raises(ValueError, match="as a dictionary of token_ids and padding_mask.*Received: str"):
        model.generate("hello", stop_token_ids=None)


def test_more_places_than_the_model_has_positions(model: Any) -> None:
    with pytest.raises(ValueError, match="positions for 12 tokens, prompt and generated ones together. Received: 20"):
        model.generate(prompt(20), stop_token_ids=None)


@pytest.mark.parametrize("stops", [3, "abc", (3.5,), [None]])
def test_stop_tokens_that_are_no_whole_numbers(model: Any, stops: Any) -> None:
    with pytest.raises(TypeError, match="a list or tuple of whole numbers, or None. Received: "):
        model.generate(prompt(), stop_token_ids=stops)


def test_no_stop_tokens_in_a_list(model: Any) -> None:
    with pytest.raises(ValueError, match="None generates up to the length"):
        model.generate(prompt(), stop_token_ids=())


def test_a_prompt_that_fills_all_places_is_returned(model: Any) -> None:
    full = prompt(given=PLACES)
    assert model.generate(dict(full), stop_token_ids=None)["token_ids"].tolist() == full["token_ids"].tolist()


def test_negative_tokens_count_from_the_end_of_the_vocabulary_as_in_stock_keras(model: Any) -> None:
    continued = []
    for token in (0, -WORDS):
        inputs = prompt()
        inputs["token_ids"][1, 2] = token
        continued.append(model.generate(inputs, stop_token_ids=None)["token_ids"][1, 3:].tolist())
    assert continued[0] == continued[1]


def test_unknown_samplers(strategy: Any) -> None:
    """Stock KerasHub calls the name, as if it were a function."""
    with strategy.scope():
        model = gpt2()
    model.compile(sampler="likeliest")
    with pytest.raises(ValueError, match="Received: 'likeliest'"):
        model.generate(prompt(), stop_token_ids=None)


def test_quantizing_twice_is_refused_as_in_stock_keras(strategy: Any) -> None:
    with strategy.scope():
        model = gpt2()
    model.quantize("int8")
    with pytest.raises(ValueError, match="is already quantized"):
        model.quantize("int8")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("config.json", "config.json` is an invalid json file|Expecting|Unterminated"),
        ("model.weights.h5", "truncated|unable to|Unable to"),
        ("class", "no class registered with Keras for .*NoSuchBackbone"),
        ("size", r"variable.shape=\(8, 16\), Received: value.shape=\(8, 8\).*feedforward_intermediate_dense/kernel"),
        ("missing", "has no config.json"),
    ],
)
def test_damaged_presets_are_refused_as_in_stock_kerashub(
    damage: str, message: str, tmp_path: Path, strategy: Any
) -> None:
    gpt2().backbone.save_to_preset(str(tmp_path))
    _damage(tmp_path, damage)
    errors = []
    for scope in (contextlib.nullcontext(), strategy.scope()):
        keras.utils.set_random_seed(1)  # the error shows some initial weights
        with pytest.raises(Exception, match=message) as raised, scope:  # noqa: PT011 - whatever stock KerasHub raises
            keras_hub.models.GPT2Backbone.from_preset(str(tmp_path))
        errors.append((type(raised.value), str(raised.value)))
    assert errors[0] == errors[1]


def _damage(preset: Path, damage: str) -> None:
    """Cuts a file of a preset, drops it, or has it tell of another class or size than the weights are of."""
    file = preset / ("model.weights.h5" if damage == "model.weights.h5" else "config.json")
    if damage == "missing":
        file.unlink()
    elif damage == "class":
        file.write_text(file.read_text().replace("GPT2Backbone", "NoSuchBackbone"))
    elif damage == "size":
        config = json.loads(file.read_text())
        config["config"]["intermediate_dim"] *= 2
        file.write_text(json.dumps(config))
    else:
        file.write_bytes(file.read_bytes()[:100])


def test_a_preset_of_another_model_is_refused_as_in_stock_kerashub(tmp_path: Path, strategy: Any) -> None:
    gpt2().backbone.save_to_preset(str(tmp_path))
    for kind in (keras_hub.models.BertBackbone, keras_hub.models.BartSeq2SeqLM):
        errors = []
        for scope in (contextlib.nullcontext(), strategy.scope()):
            with pytest.raises(ValueError, match="GPT2Backbone") as raised, scope:
                kind.from_preset(str(tmp_path), preprocessor=None)
            errors.append(str(raised.value))
        assert errors[0] == errors[1]
