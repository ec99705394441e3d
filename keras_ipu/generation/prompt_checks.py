"""Checks prompts, stop tokens and samplers of `generate`, before anything is traced.

A device clamps indices: it would replace a token that the vocabulary lacks, and continue an empty prompt.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

StopTokens = tuple[int, ...] | None
_TOKENS, _MASK = "token_ids", "padding_mask"


def checked_stop_tokens(given: Any) -> StopTokens:
    """Returns the tokens at which a sequence ends, None for none.

    Raises:
        TypeError: if they are not whole numbers in a list or tuple.
        ValueError: if there are none in it.
    """
    if given is None:
        return None
    try:
        tokens = tuple(operator.index(token) for token in given) if isinstance(given, Iterable) else None
    except TypeError:
        tokens = None
    if tokens is None:
        raise TypeError(f"`stop_token_ids` is a list or tuple of whole numbers, or None. Received: {given!r}.")
    if not tokens:
        raise ValueError("`stop_token_ids` has at least one token; None generates up to the length. Received: none.")
    return tokens


def check_sampler(model: Any) -> None:
    """Checks a model's sampler.

    Raises:
        ValueError: if it is a name that KerasHub, which keeps what it does not know, has no sampler for.
    """
    if not callable(model.sampler):
        raise ValueError(
            "`compile(sampler=...)` takes a sampler of `keras_hub.samplers`, or its name in lower case, such as "
            f"'greedy'. Received: {model.sampler!r}."
        )


def check_stepwise_sampler(model: Any, whose: str) -> None:
    """Checks that a model's sampler chooses one token after the other.

    Args:
        model: the model.
        whose: what needs it, such as "A session".

    Raises:
        ValueError: for an unknown sampler, and one that follows several texts at a time.
    """
    check_sampler(model)
    base = next(kind for kind in type(model.sampler).__mro__ if kind.__name__ == "Sampler")
    if type(model.sampler).__call__ is not base.__call__:
        raise ValueError(
            f"{whose} needs a sampler that chooses one token after the other, such as 'greedy' or 'top_p'. Received: "
            f"{type(model.sampler).__name__}."
        )


def check_prompts(model: Any, inputs: Any) -> None:
    """Checks the arrays of a batch of prompts.

    Args:
        model: which generates.
        inputs: as its preprocessor makes them: `token_ids` and `padding_mask`, each `[batch, length]`; for an encoder
            and a decoder `encoder_token_ids` and so on.

    Raises:
        ValueError: for a missing array, shapes that differ, a length that the model has no positions for, tokens beyond
            the vocabulary (Keras counts negative ones from its end), and prompts without a token.
    """
    if not isinstance(inputs, Mapping):
        raise ValueError(
            f"Without a preprocessor {model.name} takes prompts as a dictionary of {_TOKENS} and {_MASK}, or as the "
            f"arrays of its backbone. Received: {type(inputs).__name__}."
        )
    prefixes = [name.removesuffix(_TOKENS) for name in inputs if name.endswith(_TOKENS)]
    missing = [prefix + _MASK for prefix in prefixes if prefix + _MASK not in inputs] if prefixes else [_TOKENS]
    if missing:
        raise ValueError(f"{model.name} takes prompts as {_TOKENS} and {_MASK}. Received: {[*inputs]}, no {missing}.")
    for prefix in prefixes:
        _check_tokens(model, inputs, prefix)


def _check_tokens(model: Any, inputs: Mapping[str, Any], prefix: str) -> None:
    tokens, mask = (np.asarray(inputs[prefix + suffix]) for suffix in (_TOKENS, _MASK))
    if tokens.ndim != 2 or tokens.shape != mask.shape or not tokens.size:
        raise ValueError(
            f"{prefix}{_TOKENS} and {prefix}{_MASK} are of one shape, [batch, length]. Received: shapes {tokens.shape} "
            f"and {mask.shape}."
        )
    check_places(model, prefix, tokens.shape[1])
    words = getattr(model.backbone, "vocabulary_size", None)
    unknown = [] if words is None else tokens[(tokens < -words) | (tokens >= words)].tolist()
    if unknown:
        raise ValueError(
            f"Tokens of {model.name} are from -{words}, as negative ones count from the end, and below {words}, its "
            f"vocabulary's size. Received: {unknown[0]}."
        )
    empty = [] if prefix == "encoder_" else np.flatnonzero(~mask.astype(bool).any(1)).tolist()
    if empty:
        raise ValueError(
            f"A prompt has at least one token, as {prefix}{_MASK} has it. Received: none in prompts {empty}."
        )


def check_places(model: Any, prefix: str, count: int) -> None:
    """Checks that a model has positions for so many tokens.

    Args:
        model: the model.
        prefix: of its inputs' names: "encoder_", "decoder_", or "" for a decoder alone.
        count: tokens.

    Raises:
        ValueError: if it has not.
    """
    most = _positions(model.backbone, prefix)
    if most is not None and count > most:
        raise ValueError(
            f"{model.name} has positions for {most} tokens, prompt and generated ones together. Received: "
            f"{count} places in {prefix}{_TOKENS}. Shorten them, or lower `max_length` or the preprocessor's "
            "`sequence_length`."
        )


def _positions(backbone: Any, prefix: str) -> int | None:
    """Returns how many positions a backbone has embeddings for; None for one that computes them."""
    embeddings = getattr(backbone, f"{prefix}embeddings", None)
    layer = getattr(backbone, f"{prefix}position_embedding", None) or getattr(embeddings, "position_embedding", None)
    return getattr(layer, "sequence_length", None)
