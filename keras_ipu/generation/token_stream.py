"""Gives the tokens that `generate` makes to a function while the loop runs on the device.

loop on the device: next token --> outfeed --> thread of the host: `on_tokens(tokens)`
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from keras_ipu.generation.prompt_checks import StopTokens

OnTokens = Callable[[np.ndarray], Any]
NO_TOKEN = -1
"""In place of a token: a prompt's own, or what comes after a stop token."""


@contextlib.contextmanager
def each_token(sampler: Any, enqueue: Callable[[Any], None]) -> Iterator[None]:
    """Context of a trace in which a sampler's loop enqueues the tokens of each iteration, `[batch]`.

    Args:
        sampler: one that chooses one token after the other; its loop carries prompt, cache, index and mask.
        enqueue: takes the tokens.
    """
    stock = sampler.run_loop

    def run_loop(cond: Any, body: Any, **arguments: Any) -> Any:
        def body_and_queue(*state: Any) -> Any:
            after = body(*state)
            enqueue(after[0][:, state[2]])
            return after

        return stock(cond, body_and_queue, **arguments)

    sampler.run_loop = run_loop
    try:
        yield
    finally:
        del sampler.run_loop


class NewTokens:
    """Passes on the tokens of each iteration, with `NO_TOKEN` for prompts that got no new one.

    Args:
        on_tokens: gets an int32 array `[batch]` for each iteration.
        inputs: the prompts, with their padding mask.
        stops: tokens at which a sequence ends.
    """

    def __init__(self, on_tokens: OnTokens, inputs: Mapping[str, Any], stops: StopTokens) -> None:
        name = next(name for name in ("padding_mask", "decoder_padding_mask") if name in inputs)
        self._given = np.asarray(inputs[name]).astype(bool)
        self._place = int(self._given.sum(axis=1).min())
        self._ended = np.zeros(len(self._given), bool)
        self._on_tokens, self._stops = on_tokens, stops or ()

    def take(self, tokens: np.ndarray) -> None:
        """Passes on the tokens of the next place."""
        new = ~self._ended & ~self._given[:, self._place]
        self._place += 1
        self._ended |= new & np.isin(tokens, self._stops)
        self._on_tokens(np.where(new, tokens, NO_TOKEN).astype(np.int32))
