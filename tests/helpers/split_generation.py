"""Cases of models whose weights are split over two JAX devices; run by `test_split_generation.py`, on JAX."""

from __future__ import annotations

from typing import Any

import jax
import keras
import numpy as np
import pytest

import ipu_tf as ipu
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

keras_hub = pytest.importorskip("keras_hub", reason="KerasHub is not installed: pip install keras-hub")

# Its own imports are older than the packages that it imports.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

WORDS, LENGTH = 40, 12
SIZES = {"num_layers": 1, "num_query_heads": 2, "num_key_value_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
FAMILIES = {"Llama": SIZES, "Gemma": {**SIZES, "head_dim": 4}}


def _model(family: str) -> Any:
    backbone = getattr(keras_hub.models, f"{family}Backbone")(WORDS, **FAMILIES[family])
    return getattr(keras_hub.models, f"{family}CausalLM")(backbone=backbone, preprocessor=None)


def _tokens(model: Any, sampler: Any) -> list[list[int]]:
    mask = (np.arange(LENGTH) < np.array([3, 5])[:, None]).astype(np.int32)
    words = np.random.default_rng(0).integers(4, WORDS, mask.shape, dtype=np.int32)
    model.compile(sampler=sampler)
    found = model.generate({"token_ids": words * mask, "padding_mask": mask}, stop_token_ids=None)["token_ids"]
    return np.asarray(found).tolist()


@pytest.mark.parametrize("sampler", ["greedy", "random"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_split_model_gives_the_tokens_of_a_whole_one(family: str, sampler: str) -> None:
    """KerasHub's layout map says which weights are split; stock KerasHub has them on one device."""

    def make_sampler() -> Any:
        return "greedy" if sampler == "greedy" else keras_hub.samplers.RandomSampler(seed=5)

    assert len(jax.devices()) == 2
    keras.utils.set_random_seed(1)
    stock = _model(family)
    # Larger weights than fresh ones, so that the likeliest words differ from place to place.
    stock.set_weights([np.float32(8) * weight for weight in stock.get_weights()])
    expected = _tokens(stock, make_sampler())
    mesh = keras.distribution.DeviceMesh((1, 2), ["batch", "model"], keras.distribution.list_devices())
    layout = getattr(keras_hub.models, f"{family}Backbone").get_layout_map(mesh)
    parallel = keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")
    with ipus(1), parallel.scope(), device_work() as work:
        with ipu.ipu_strategy.IPUStrategy().scope():
            model = _model(family)
        model.set_weights(stock.get_weights())
        for _ in range(2):
            found = _tokens(model, make_sampler())
            assert found == expected
            split = [each for each in model.variables if not each.value.is_fully_replicated]
            assert {len(each.value.sharding.device_set) for each in split} == {2} and len(split) >= 6
    assert work.counts.executions == 2
