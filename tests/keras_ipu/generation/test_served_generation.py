"""Exports `generate` of KerasHub's language models: stock TensorFlow and the device give the tokens of the model.

An optional extra: `pip install --editable '.[hub]'`. `KERAS_BACKEND=jax pytest` runs it with Keras on JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from tests.helpers.some_ipus import ipus

keras_hub = pytest.importorskip("keras_hub", reason="KerasHub is not installed: pip install keras-hub")

# Its own imports are older than the packages that it imports.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

WORDS, PLACES = 40, 10
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12, "max_sequence_length": PLACES}


@pytest.fixture(scope="module", autouse=True)
def strategy() -> Iterator[Any]:
    with ipus(1):
        yield ipu.ipu_strategy.IPUStrategy()


def _in_scope(strategy: Any, make: Callable[[], Any]) -> Any:
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = make()
    # Larger weights than fresh ones, so that the likeliest words differ from place to place.
    model.set_weights([np.float32(8) * weight for weight in model.get_weights()])
    return model


def gpt2() -> Any:
    return keras_hub.models.GPT2CausalLM(keras_hub.models.GPT2Backbone(WORDS, dropout=0.0, **SIZES), preprocessor=None)


def bart() -> Any:
    return keras_hub.models.BartSeq2SeqLM(keras_hub.models.BartBackbone(WORDS, dropout=0.0, **SIZES), preprocessor=None)


def prompts(*lengths: int, places: int = PLACES, prefix: str = "") -> dict[str, np.ndarray]:
    mask = (np.arange(places) < np.array(lengths)[:, None]).astype(np.int32)
    words = np.random.default_rng(sum(lengths)).integers(4, WORDS, mask.shape, dtype=np.int32)
    return {f"{prefix}token_ids": words * mask, f"{prefix}padding_mask": mask}


def _check(model: Any, folder: Path, inputs: dict[str, np.ndarray], stops: list[int] | None, **options: Any) -> None:
    """Compares the model's tokens with those of the SavedModel in TensorFlow, and on the device."""
    names = ["seed"][: len(model.sampler.variables)]
    seeds = {
        name: np.asarray(state.value).astype(np.int32)
        for name, state in zip(names, model.sampler.variables, strict=True)
    }
    wanted = model.generate(dict(inputs), stop_token_ids=stops)
    on_device = model.export_for_ipu_serving(folder, stop_token_ids=stops, **options)
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    given = {name: tf.constant(array) for name, array in {**inputs, **seeds}.items()}
    assert set(served.structured_input_signature[1]) == set(given)
    for found in (served(**given), on_device(*given.values())):
        assert set(found) == set(wanted)
        assert {name: array.numpy().tolist() for name, array in found.items()} == {
            name: np.asarray(array).astype(int).tolist() for name, array in wanted.items()
        }


def test_greedy_until_a_stop(tmp_path: Path, strategy: Any) -> None:
    model = _in_scope(strategy, gpt2)
    model.compile(sampler="greedy")
    inputs = prompts(2, 4)
    stop = int(model.generate(dict(inputs), stop_token_ids=None)["token_ids"][0, 5])
    _check(model, tmp_path, inputs, [stop], batch_size=2, max_length=PLACES)


def test_samplers_that_draw_take_a_seed(tmp_path: Path, strategy: Any) -> None:
    """Of another seed they draw other tokens: it is no constant of the program."""
    model = _in_scope(strategy, gpt2)
    model.compile(sampler=keras_hub.samplers.RandomSampler(seed=5))
    _check(model, tmp_path, prompts(3), None, max_length=PLACES)
    served = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    given = {name: tf.constant(array) for name, array in prompts(3).items()}
    drawn = {str(served(**given, seed=tf.constant([0, seed]))["token_ids"].numpy()) for seed in range(3)}
    assert len(drawn) > 1


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["beam", "contrastive"])
def test_other_searches(sampler: str, tmp_path: Path, strategy: Any) -> None:
    model = _in_scope(strategy, gpt2)
    search = {"beam": keras_hub.samplers.BeamSampler(3), "contrastive": keras_hub.samplers.ContrastiveSampler(3, 0.3)}
    model.compile(sampler=search[sampler])
    _check(model, tmp_path, prompts(2, 4), None, batch_size=2, max_length=PLACES)


@pytest.mark.slow
def test_an_encoder_with_a_decoder(tmp_path: Path, strategy: Any) -> None:
    model = _in_scope(strategy, bart)
    model.compile(sampler="greedy")
    inputs = prompts(4, places=6, prefix="encoder_") | prompts(1, prefix="decoder_")
    _check(model, tmp_path, inputs, None, max_length=(6, PLACES))


@pytest.mark.slow
def test_packed_weights_are_exported_too(tmp_path: Path, strategy: Any) -> None:
    model = _in_scope(strategy, gpt2)
    with pytest.warns(UserWarning, match="does not have a `quantize` method"):
        model.quantize("int8")
    model.compile(sampler="greedy")
    _check(model, tmp_path, prompts(3), None, max_length=PLACES)


def test_what_is_refused(tmp_path: Path, strategy: Any) -> None:
    model = _in_scope(strategy, gpt2)
    model.compile(sampler="greedy")
    folder = tmp_path / "new"
    for options, message in (
        ({"max_length": PLACES + 1}, "has positions for 10 tokens"),
        ({"max_length": (4, 4)}, "is a whole number. Received: .4, 4."),
        ({"max_length": 0}, "max_length"),
        ({"max_length": 4, "batch_size": 0}, "batch_size"),
        ({"max_length": 4, "stop_token_ids": []}, "at least one token"),
        ({"stop_token_ids": [1]}, "`stop_token_ids` is for .*`max_length`"),
    ):
        with pytest.raises(ValueError, match=message):
            model.export_for_ipu_serving(folder, **options)
    with pytest.raises(TypeError, match="Received: GPT2Backbone"):
        model.backbone.export_for_ipu_serving(folder, max_length=4)
    model.compile(sampler="likeliest")
    with pytest.raises(ValueError, match="Received: 'likeliest'"):
        model.export_for_ipu_serving(folder, max_length=4)
    assert not folder.exists()
