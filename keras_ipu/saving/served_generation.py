"""`served_generation`: a language model's `generate` as a function of tensors, for export.

token_ids, padding_mask (, seed) --> prompt into the cache --> loop: next token --> token_ids, padding_mask
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from ipu_tf._arguments.counts import checked_count
from keras_ipu.generation.prompt_checks import check_places, check_sampler, checked_stop_tokens

SEED = "seed"
"""The input of programs that draw tokens: of equal seeds and prompts they draw the same."""


@dataclasses.dataclass(frozen=True)
class ServedGeneration:
    """A language model's `generate_step` for prompts of one shape.

    Attributes:
        model: the model, compiled with its sampler.
        batch_size: prompts in a call.
        places: of an encoder's and of a decoder's tokens, by the prefix of their inputs' names; of a model that has a
            decoder alone, by "".
        stop_token_ids: tokens at which a text ends; None for none.
    """

    model: Any
    batch_size: int
    places: dict[str, int]
    stop_token_ids: tuple[int, ...] | None

    @property
    def signature(self) -> list[tf.TensorSpec]:
        """The inputs, int32: tokens and mask `[batch, places]`, and a seed `[2]` for samplers that draw."""
        shapes = {
            f"{prefix}{name}": [self.batch_size, count]
            for prefix, count in self.places.items()
            for name in ("token_ids", "padding_mask")
        }
        if self.model.sampler.variables:
            shapes[SEED] = [2]
        return [tf.TensorSpec(shape, tf.int32, name) for name, shape in shapes.items()]

    @property
    def output_names(self) -> list[str]:
        """Names of the results: tokens, and the mask of those before the stop."""
        prefix = "decoder_" if "decoder_" in self.places else ""
        return [f"{prefix}token_ids", f"{prefix}padding_mask"]

    def __call__(self, *tensors: Any) -> list[Any]:
        """Generates; traced. Gives tokens and mask, int32."""
        inputs = dict(zip([spec.name for spec in self.signature], tensors, strict=True))
        seed = inputs.pop(SEED, None)
        drawing = contextlib.nullcontext() if seed is None else seeded(self.model, seed)
        with drawing:
            outputs = self.model.generate_step(inputs, self.stop_token_ids)
        return [ops.cast(outputs[name], "int32") for name in self.output_names]


def served_generation(
    model: Any, batch_size: int | None, max_length: Any, stop_token_ids: Sequence[int] | None
) -> ServedGeneration:
    """Checks what is to be exported.

    Args:
        model: the model.
        batch_size: prompts in a call; 1 by default.
        max_length: places for tokens, given and generated ones together; of an encoder and a decoder a pair, or one
            number for both.
        stop_token_ids: tokens at which a text ends; None for none.

    Raises:
        TypeError: for a model that is no language model of KerasHub's, and stop tokens that are not whole numbers.
        ValueError: for an unknown sampler, and more places than the model has positions for.
    """
    if not hasattr(model, "generate_step"):
        raise TypeError(
            f"`max_length` exports the `generate` of a language model of KerasHub's. Received: {type(model).__name__}."
        )
    check_sampler(model)
    prefixes = ("encoder_", "decoder_") if "encoder_token_ids" in model.backbone.input else ("",)
    lengths = max_length if isinstance(max_length, (tuple, list)) else [max_length] * len(prefixes)
    if len(lengths) != len(prefixes):
        raise ValueError(
            f"`max_length` of {model.name} is a whole number{', or a pair of them' if len(prefixes) == 2 else ''}. "
            f"Received: {max_length!r}."
        )
    places = {prefix: checked_count("max_length", each) for prefix, each in zip(prefixes, lengths, strict=True)}
    for prefix, count in places.items():
        check_places(model, prefix, count)
    batch = 1 if batch_size is None else checked_count("batch_size", batch_size)
    return ServedGeneration(model, batch, places, checked_stop_tokens(stop_token_ids))


@contextlib.contextmanager
def seeded(model: Any, seed: Any) -> Iterator[None]:
    """Context of a trace in which a model's sampler begins with a given seed, which its loop carries.

    Args:
        model: the model; its sampler has one seed generator.
        seed: int32 `[2]`.

    Raises:
        ValueError: for a sampler with other variables.
    """
    sampler = model.sampler
    if len(sampler.variables) != 1 or tuple(sampler.variables[0].shape) != (2,):
        raise ValueError(
            f"A sampler that is exported has one seed. Received: {type(sampler).__name__} with variables of shapes "
            f"{[tuple(each.shape) for each in sampler.variables]}."
        )
    [state], first = sampler.variables, ops.cast(seed, sampler.variables[0].dtype)

    def run_loop(cond: Callable[..., Any], body: Callable[..., Any], model: Any, loop_vars: Any, **most: Any) -> Any:
        values = [(variable, ops.convert_to_tensor(variable)) for variable in model.variables]

        def seeded_body(state_value: Any, *loop: Any) -> Any:
            with keras.StatelessScope([*values, (state, state_value)]) as scope:
                after = body(*loop)
            return (scope.get_current_value(state), *after)

        variables = (first, *loop_vars)
        return ops.while_loop(lambda _, *loop: cond(*loop), seeded_body, variables, **most)[1:]

    sampler.run_loop = run_loop
    try:
        yield
    finally:
        del sampler.run_loop
