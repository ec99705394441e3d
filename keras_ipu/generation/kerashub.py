"""Replaces methods of KerasHub's `CausalLM`, once that is imported, for the language models of an IPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import keras

from ipu_tf._patches.import_hooks import after_import
from keras_ipu.generation.generate_function import GenerateFunction
from keras_ipu.generation.jax_generate import JaxGenerateFunction
from keras_ipu.generation.packed_layers import patch_quantized_layers
from keras_ipu.generation.prompt_checks import check_stepwise_sampler
from keras_ipu.generation.tensorflow_generate import TensorFlowGenerateFunction
from keras_ipu.generation.token_stream import OnTokens
from keras_ipu.stock import patches as keras_patches
from keras_ipu.stock.ownership import is_ipu_model
from keras_ipu.training.common.eager_runs import runs_eagerly
from keras_ipu.training.common.running_streams import wait_for_streams
from keras_ipu.training.common.trainer import is_running

_MODULE = "keras_hub.src.models.causal_lm"
"""Where KerasHub defines `CausalLM`, whose method its language models inherit: decoders, and encoders with decoders."""
_WITH_OWN_GENERATE = {
    "keras_hub.src.models.blip2.blip2_causal_lm": "BLIP2CausalLM",
    "keras_hub.src.models.gemma3.gemma3_causal_lm": "Gemma3CausalLM",
    "keras_hub.src.models.gemma3n.gemma3n_causal_lm": "Gemma3nCausalLM",
    "keras_hub.src.models.gemma4.gemma4_causal_lm": "Gemma4CausalLM",
    "keras_hub.src.models.phi3.phi3_causal_lm": "Phi3CausalLM",
}
"""Subclasses of KerasHub's that override `generate`, by module."""
_ARGUMENTS = 4
"""How many arguments `CausalLM.generate` takes; what comes after is a subclass's own."""
FUNCTIONS: dict[str, Callable[..., GenerateFunction]] = {
    "tensorflow": TensorFlowGenerateFunction,
    "jax": JaxGenerateFunction,
}
"""By Keras's back end."""


def patch_generate() -> None:
    """Makes `generate` of IPU models run on the device; of other models it stays KerasHub's. Idempotent."""
    after_import(_MODULE, _patch_causal_lm)
    for module, name in _WITH_OWN_GENERATE.items():
        after_import(module, functools.partial(_patch_own_generate, name))
    patch_quantized_layers()


def _patch_causal_lm(module: ModuleType) -> None:
    keras_patches.patch_method(module.CausalLM, "make_generate_function", is_ipu_model, _make_generate_function)
    keras_patches.patch_method(module.CausalLM, "generate", is_ipu_model, _generate)


def _patch_own_generate(name: str, module: ModuleType) -> None:
    # Its own calls `CausalLM.generate`, without the arguments that it does not know.
    keras_patches.patch_method(getattr(module, name), "generate", is_ipu_model, _generate)


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


def _generate(
    stock: Callable[..., Any],
    model: Any,
    *args: Any,
    on_tokens: OnTokens | None = None,
    stream: bool = False,
    **kwargs: Any,
) -> Any:
    """Replaces `generate`, which takes two arguments more: both give tokens as they are made.

    Args:
        stock: KerasHub's own.
        model: the model.
        *args: of KerasHub's.
        on_tokens: a function that gets the tokens of each place.
        stream: whether to return an iterator of them, a `TokenIterator`.
        **kwargs: of KerasHub's.
    """
    wait_for_streams(model)
    function = model.make_generate_function()
    on_device = isinstance(function, GenerateFunction)
    if on_tokens is None and not stream:
        return stock(model, *args, **kwargs)
    asked = "`stream`" if stream else "`on_tokens`"
    if on_tokens is not None and stream:
        raise ValueError("`stream=True` returns an iterator of what `on_tokens` gets: give one of them.")
    if not on_device:
        raise ValueError(f"{asked} takes tokens from the device, and {model.name} has `run_eagerly=True`.")
    if stream and is_running():
        raise ValueError("`stream=True` runs beside the program: not in callbacks of a `fit`, which has the weights.")
    check_stepwise_sampler(model, asked)
    if kwargs.get("assistant_model") is not None or len(args) > _ARGUMENTS:
        raise ValueError(f"{asked} takes one token after the other: an `assistant_model` gives several at a time.")

    def generate(take: OnTokens) -> Any:
        with function.streamed(take):
            return stock(model, *args, **kwargs)

    return function.stream(generate) if on_tokens is None else generate(on_tokens)
