"""`IPUModelConfig`: Optimum's `ipu_config.json` is read, written, and applied to Keras models."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import keras_ipu
from ipu_tf.config import EmulationWarning
from ipu_tf.emulation import ignored_arguments
from ipu_tf.ops.pipelining_ops import RecomputationMode
from keras_ipu.model_config.consistency import IncompatibleIPUConfigError
from keras_ipu.model_config.model_config import IPUModelConfig
from keras_ipu.options.model_state import options_of
from keras_ipu.pipeline.run_checks import shard_count, stage_numbers
from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import integers, ipu_scope
from tests.helpers.some_ipus import ipus

#: As Graphcore published it for BERT base.
PUBLISHED = {
    "device_iterations": 1,
    "embedding_serialization_factor": 2,
    "enable_half_first_order_momentum": True,
    "enable_half_partials": True,
    "executable_cache_dir": "./exe_cache",
    "gradient_accumulation_steps": 512,
    "inference_device_iterations": 4,
    "inference_replication_factor": 4,
    "ipus_per_replica": 4,
    "layers_per_ipu": [0, 4, 4, 4],
    "matmul_proportion": 0.22,
    "optimizer_state_offchip": False,
    "optimum_version": "0.1.2",
    "output_mode": "final",
    "recompute_checkpoint_every_layer": True,
    "replicated_tensor_sharding": True,
    "replication_factor": 4,
    "seed": 42,
}
WORDS, LENGTH, WIDTH, BATCH, STEPS = 20, 6, 8, 2, 6


def test_a_published_file_is_read_and_written_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "ipu_config.json").write_text(json.dumps(PUBLISHED))
    config = keras_ipu.IPUModelConfig.from_pretrained(tmp_path)
    assert config.layers_per_ipu == (0, 4, 4, 4) and config.num_ipus == 16 and config.steps_per_execution == 512
    assert config.ipu_config().auto_select_ipus == 16
    config.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "ipu_config.json").read_text()) == PUBLISHED
    assert keras_ipu.IPUModelConfig.from_pretrained(tmp_path / "again" / "ipu_config.json") == config
    assert set(config.without_effect()) == {
        *("embedding_serialization_factor", "enable_half_first_order_momentum", "executable_cache_dir", "seed"),
        *("inference_device_iterations", "inference_replication_factor", "matmul_proportion"),
        "replicated_tensor_sharding",
    }


@pytest.mark.parametrize(
    ("fields", "blocks", "found"),
    [
        ({"layers_per_ipu": [0, 4, 4, 4]}, 12, (0, 4, 4, 4)),
        ({"ipus_per_replica": 4}, 10, (2, 2, 2, 4)),
        ({"layers_per_ipu": [-1, -1]}, 9, (4, 5)),
        ({"layers_per_ipu": [1, 2, -1, -1]}, 10, (1, 2, 3, 4)),
        ({"layers_per_ipu": [1, -1, 2]}, 3, (1, 0, 2)),
        ({"layers_per_ipu": [24]}, 12, (12,)),
        ({"layers_per_ipu": [3, 3], "ipus_per_replica": 1}, 12, (12,)),
        ({}, 5, (5,)),
    ],
)
def test_layers_of_each_ipu(fields: dict[str, Any], blocks: int, found: tuple[int, ...]) -> None:
    assert IPUModelConfig(**fields).layers_for(blocks) == found


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"layers_per_ip": [1]}, TypeError, "Did you mean 'layers_per_ipu'"),
        ({"layers_per_ipu": [1, -2]}, TypeError, "list of ints from -1 on"),
        ({"layers_per_ipu": "2,2"}, TypeError, "list of ints from -1 on"),
        ({"replication_factor": {"default": 1, "pod16": 4}}, TypeError, "`replication_factor` must be of type int"),
        ({"gradient_accumulation_steps": 0}, ValueError, "must be from 1 to "),
        ({"layers_per_ipu": [2, 2], "ipus_per_replica": 4}, IncompatibleIPUConfigError, "has 2 IPUs, and .*=4"),
        ({"layers_per_ipu": [2, 2], "matmul_proportion": [0.1]}, IncompatibleIPUConfigError, "each of the 2 IPUs"),
        (
            {"embedding_serialization_factor": 2, "serialized_embedding_splits_per_ipu": [1]},
            IncompatibleIPUConfigError,
            "Only one of",
        ),
        ({"output_mode": "some"}, ValueError, "all, sum, final or default. Received: 'some'"),
    ],
)
def test_fields_that_cannot_be(fields: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        IPUModelConfig.from_dict(fields)


def test_files_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no ipu_config.json in .* Shipped are: bert_base_en, "):
        IPUModelConfig.from_pretrained(tmp_path)
    for text, error in (("{", "is damaged"), ("[1]", "should hold an object of JSON. Received: list")):
        (tmp_path / "ipu_config.json").write_text(text)
        with pytest.raises(ValueError, match=error):
            IPUModelConfig.from_pretrained(tmp_path)


class Block(layers.Layer):
    """A block of a few variables."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.inner, self.outer = layers.Dense(2 * WIDTH, activation="relu"), layers.Dense(WIDTH)

    def build(self, shape: Any) -> None:
        self.inner.build(shape)
        self.outer.build((*shape[:-1], 2 * WIDTH))

    def call(self, x: Any) -> Any:
        return x + self.outer(self.inner(x))


def language_model(blocks: int = 4) -> keras.Model:
    """A model whose table of tokens is its head too."""
    inputs = keras.Input((LENGTH,), dtype="int32")
    table = layers.ReversibleEmbedding(WORDS, WIDTH, name="table")
    x = layers.Dropout(0.0)(table(inputs))
    for number in range(blocks):
        x = Block(name=f"block_{number}")(x)
    return keras.Model(inputs, table(layers.LayerNormalization()(x), reverse=True))


@pytest.mark.parametrize(
    ("layers_per_ipu", "stages", "mapping"),
    [
        ([0, 2, 2], [0, 0, 1, 1, 2, 2, 2, 3], (0, 1, 2, 0)),
        ([1, 1, 1, 1], [0, 0, 0, 1, 2, 3, 3, 4], (0, 1, 2, 3, 0)),
        ([-1, -1], [0, 0, 0, 0, 1, 1, 1, 2], (0, 1, 0)),
    ],
)
def test_blocks_become_stages(layers_per_ipu: list[int], stages: list[int], mapping: tuple[int, ...]) -> None:
    config = IPUModelConfig(layers_per_ipu=layers_per_ipu, recompute_checkpoint_every_layer=True)
    with ipus(config.num_ipus), ipu_scope():
        model = language_model()
        config.apply(model)
        assert stage_numbers(model) == stages
        assert options_of(model).pipelining_device_mapping == mapping
        recomputed = options_of(model).pipelining_kwargs["recomputation_mode"]
        assert recomputed is RecomputationMode.RecomputeThenBackpropagate
        model.reset_pipeline_stage_assignment()
        config.apply(model, layers=["block_*"])
        assert stage_numbers(model) == stages
        model.set_pipelining_options(**options_of(model).pipelining_kwargs, offload_activations=True)
        IPUModelConfig(layers_per_ipu=layers_per_ipu).apply(model)
        assert options_of(model).pipelining_kwargs["offload_activations"]
        assert "recomputation_mode" not in options_of(model).pipelining_kwargs


def test_a_configured_model_trains_as_stock_keras() -> None:
    """Two updates of three stages on two IPUs, the table of tokens in the first and the last."""
    x = integers(WORDS, 2 * STEPS * BATCH, LENGTH)
    config = IPUModelConfig(layers_per_ipu=[-1, 3], gradient_accumulation_steps=STEPS, device_iterations=2, seed=7)

    def trained(scope: contextlib.AbstractContextManager[Any], ours: bool) -> list[np.ndarray]:
        keras.utils.clear_session()
        keras.utils.set_random_seed(1)
        with scope:
            model = language_model()
        if ours:
            config.apply(model)
        accumulation = {} if ours else {"gradient_accumulation_steps": STEPS}
        model.compile(
            keras.optimizers.SGD(0.1, momentum=0.9, **accumulation),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            steps_per_execution=config.steps_per_execution if ours else 1,
        )
        losses = model.fit(x, np.roll(x, -1, 1), batch_size=BATCH, shuffle=False, verbose=0).history["loss"]
        return [np.array(losses), *model.get_weights()]

    wanted = trained(contextlib.nullcontext(), False)
    with ipus(2), device_work() as work:
        found = trained(ipu_scope(), True)
    assert work.counts.executions == 1
    for ours, stock in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, stock, rtol=1e-5, atol=1e-6)
    assert [each.value for each in ignored_arguments() if each.name == "IPUModelConfig.seed"] == ["7"]


def test_one_ipu_accumulates_without_stages() -> None:
    config = IPUModelConfig(gradient_accumulation_steps=4, auto_loss_scaling=True)
    with ipus(1), ipu_scope():
        model = language_model()
        with pytest.warns(EmulationWarning, match="auto_loss_scaling is not emulated. .*ALSOptimizer"):
            config.apply(model)
        assert options_of(model).gradient_accumulation_steps == 4 and stage_numbers(model) == []


def test_what_does_not_fit_a_model() -> None:
    with ipus(2):
        with pytest.raises(TypeError, match="made in an `IPUStrategy`'s scope"):
            IPUModelConfig(layers_per_ipu=[2, 2]).apply(language_model())
        with ipu_scope():
            model = language_model()
            plain = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
        for wrong in ([1, 2], [3, 2], [5, -1]):
            with pytest.raises(IncompatibleIPUConfigError, match="the model has 4. Its blocks begin with: block_0, "):
                IPUModelConfig(layers_per_ipu=wrong).apply(model)
        with pytest.raises(IncompatibleIPUConfigError, match="2 replicas of 2 IPUs each take 4, and .* has 2"):
            IPUModelConfig(layers_per_ipu=[2, 2], replication_factor=2).apply(model)
        with pytest.raises(ValueError, match=r"has no layers named \['encoder_\*'\]"):
            IPUModelConfig(layers_per_ipu=[2, 2]).apply(model, layers=["encoder_*"])
        with pytest.raises(ValueError, match="has no layers that repeat"):
            IPUModelConfig(layers_per_ipu=[1, 1]).apply(plain)
        assert stage_numbers(model) == [] and shard_count(model) == 1
