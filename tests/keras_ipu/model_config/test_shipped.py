"""Shipped configurations: of the sizes of KerasHub's presets, and balanced.

An optional extra: `pip install --editable '.[hub]'`. `KERAS_BACKEND=jax pytest` runs it with Keras on JAX.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_ipu.model_config.model_config import IPUModelConfig
from keras_ipu.model_config.shipped import SHIPPED
from keras_ipu.options.model_state import options_of
from keras_ipu.pipeline.call_costs import call_costs
from keras_ipu.pipeline.run_checks import stage_numbers
from keras_ipu.pipeline.split_by_cost import one_stage_plan
from tests.helpers.keras_parity import ipu_scope
from tests.helpers.shipped_models import MODELS
from tests.helpers.some_ipus import ipus

hub = pytest.importorskip("keras_hub", reason="KerasHub is not installed: pip install keras-hub").models

pytestmark = [
    pytest.mark.slow,
    # Its own imports are older than the packages that it imports.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # T5's attention has no use for masks.
    pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask attached to it:UserWarning"),
]

_SOUNDS, _WIDTH, _FEATURES, _CLASSES, _STATISTICS = 1500, 384, 1280, 1000, 42016
COUNTED_OTHERWISE = {
    "whisper_tiny_en": -_SOUNDS * _WIDTH,
    "efficientnet_b0_ra_imagenet": (_FEATURES + 1) * _CLASSES - _STATISTICS,
}
"""What KerasHub's number of parameters leaves out of the backbone's or has besides: the encoder's positions, which do
not train; the classifier, without the statistics of `BatchNormalization`."""
NOT_COUNTED = ("whisper_base_en", "convnext_tiny")
"""Of the first KerasHub has the number of `gpt2_base_en`; the second is of `keras.applications`."""


@pytest.mark.parametrize("name", [name for name in SHIPPED if name not in NOT_COUNTED])
def test_a_preset_has_as_many_parameters(name: str) -> None:
    found = MODELS[name].parameters()
    keras.utils.clear_session()  # forgets variables without values
    assert found + COUNTED_OTHERWISE.get(name, 0) == hub.Backbone.presets[name]["metadata"]["params"]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_configurations_are_balanced(name: str) -> None:
    config = IPUModelConfig.from_pretrained(name)
    with ipus(config.num_ipus), ipu_scope():
        model = MODELS[name].model()
        config.apply(model)
        costs, _ = call_costs(one_stage_plan(model), 1)
        mapping = options_of(model).pipelining_device_mapping
        assert mapping is not None
        sums = np.bincount(
            [mapping[stage] for stage in stage_numbers(model)],
            weights=[each.flops for each in costs],
            minlength=config.num_ipus,
        )
    print(f"{name}: {sums.max() / sums.mean():.2f}")
    assert sums.min() > 0 and sums.max() <= 1.25 * sums.mean()
    # Each stage of a pipeline has a micro-batch to work on, forwards and backwards.
    assert config.gradient_accumulation_steps >= 2 * (max(stage_numbers(model)) + 1)
