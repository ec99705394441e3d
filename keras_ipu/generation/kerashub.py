"""Replaces `CausalLM.make_generate_function` of KerasHub, once that is imported, for the language models of an IPU."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import keras

from ipu_tf._patches.import_hooks import after_import
from keras_ipu.generation.generate_function import GenerateFunction
from keras_ipu.generation.jax_generate import JaxGenerateFunction
from keras_ipu.generation.packed_layers import patch_quantized_layers
from keras_ipu.generation.tensorflow_generate import TensorFlowGenerateFunction
from keras_ipu.stock import patches as keras_patches
from keras_ipu.stock.ownership import is_ipu_model
from keras_ipu.training.common.eager_runs import runs_eagerly

_MODULE = "keras_hub.src.models.causal_lm"
"""Where KerasHub defines `CausalLM`, whose method its language models inherit: decoders, and encoders with decoders."""
FUNCTIONS: dict[str, Callable[..., GenerateFunction]] = {
    "tensorflow": TensorFlowGenerateFunction,
    "jax": JaxGenerateFunction,
}
"""By Keras's back end."""


def patch_generate() -> None:
    """Makes `generate` of IPU models run on the device; of other models it stays KerasHub's. Idempotent."""
    after_import(_MODULE, _patch_causal_lm)
    patch_quantized_layers()


def _patch_causal_lm(module: ModuleType) -> None:
    keras_patches.patch_method(module.CausalLM, "make_generate_function", is_ipu_model, _make_generate_function)


def _make_generate_function(stock: Callable[[Any], Any], model: Any) -> Any:
    """Replaces `make_generate_function`: `compile`, `quantize` and a new `run_eagerly` forget its function."""
    now = model.generate_function
    if runs_eagerly(model):
        if isinstance(now, GenerateFunction):
            model.generate_function = None  # `run_eagerly` was set since: KerasHub would keep the compiled one
        return stock(model)
    if not isinstance(now, GenerateFunction):
        model.generate_function = FUNCTIONS[keras.backend.backend()](model)
    return model.generate_function
