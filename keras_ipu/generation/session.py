"""`GeneratorSession`: a text that a language model continues turn by turn, its keys and values kept on the device."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from ipu_tf._arguments.counts import checked_count
from keras_ipu.generation.kerashub import FUNCTIONS
from keras_ipu.generation.prompt_checks import check_prompts, check_stepwise_sampler, checked_stop_tokens
from keras_ipu.generation.session_turn import SessionTurn
from keras_ipu.stock import models as keras_models
from keras_ipu.stock.ownership import is_ipu_model


class GeneratorSession:
    """One text, which grows by what is given and what is generated; `model.ipu_generator()` makes it.

    Each turn is one execution: it reads the new tokens only, as the cache has the keys and values of those before.
    Texts are numbers of tokens, as the model's tokenizer makes them. Weights that change meanwhile count from the next
    turn on; what the cache has of earlier ones stays.

    Args:
        model: a causal language model of KerasHub's, made in an `IPUStrategy`'s scope and compiled with a sampler that
            chooses one token after the other.
        max_length: places for tokens, given and generated ones together.

    Raises:
        TypeError: for another model.
        ValueError: for an unknown sampler, one that follows several texts at a time, and more places than the model has
            positions for.
    """

    def __init__(self, model: Any, max_length: int) -> None:
        if not (is_ipu_model(model) and hasattr(model, "call_with_cache") and hasattr(model, "_build_cache")):
            raise TypeError(
                "A session needs a causal language model of KerasHub's that was made in an `IPUStrategy`'s scope. "
                f"Received: {type(model).__name__}."
            )
        if not _takes_tokens_alone(model._build_cache):  # noqa: SLF001 - KerasHub's
            raise TypeError(
                f"A session needs a language model whose cache is made of tokens alone. Received: "
                f"{type(model).__name__}, whose cache takes more, such as images. Use its `generate`."
            )
        self._model, self._max_length = model, checked_count("max_length", max_length)
        check_stepwise_sampler(model, "A session")
        check_prompts(model, _arrays(np.zeros(self._max_length, np.int32)))
        with keras_models.strategy_of(model).scope():
            turn = SessionTurn(model, self._max_length)
        self._made_with = _parts(model)
        self._run = FUNCTIONS[keras.backend.backend()](model, turn.compute, (turn.cache,))
        self._tokens = np.zeros(0, np.int32)

    @property
    def tokens(self) -> np.ndarray:
        """The whole text up to now, int32 `[length]`."""
        return self._tokens.copy()

    def generate(
        self, token_ids: Sequence[int] | np.ndarray, max_new_tokens: int, stop_token_ids: Sequence[int] | None = None
    ) -> np.ndarray:
        """Appends tokens to the text and continues it.

        Args:
            token_ids: what is said next, one whole number for each token; may be empty after the first turn.
            max_new_tokens: tokens to generate at most.
            stop_token_ids: tokens at which the turn ends; None for none.

        Returns:
            The tokens that were generated, int32; the last one is a stop token if the turn ended at one.

        Raises:
            TypeError: for stop tokens that are not whole numbers.
            ValueError: for tokens beyond the vocabulary, a text without a token, no place for `max_new_tokens`, and a
                model that was compiled or quantised since.

        Example:
            session = model.ipu_generator(max_length=512)
            answer = session.generate(tokenizer("How are you?"), max_new_tokens=32, stop_token_ids=[0])
            answer = session.generate(tokenizer("And today?"), max_new_tokens=32, stop_token_ids=[0])
        """
        stops = checked_stop_tokens(stop_token_ids)
        if _parts(self._model) != self._made_with:
            raise ValueError(
                f"{self._model.name} was compiled or quantised since the session was made. Make another one: "
                "`model.ipu_generator()`."
            )
        text = np.concatenate([self._tokens, self._checked(token_ids)])
        end = len(text) + checked_count("max_new_tokens", max_new_tokens)
        if end > self._max_length:
            raise ValueError(
                f"The session has {self._max_length} places, and {len(text)} tokens and {end - len(text)} new ones "
                f"need {end}. Make one with a greater `max_length`."
            )
        # The last token generated before is not in the cache: it has not been read.
        start = max(0, len(self._tokens) - 1)
        read = np.zeros((1, _padded(len(text) - start, self._max_length - start)), np.int32)
        read[0, : len(text) - start] = text[start:]
        numbers = np.array([[start, len(text), end]], np.int32)
        found, length = self._run.run({"read": read, "numbers": numbers}, stops)
        new = np.asarray(found)[0, len(text) : int(np.asarray(length)[0])].astype(np.int32)
        self._tokens = np.concatenate([text, new])
        return new

    def stream(
        self,
        token_ids: Sequence[int] | np.ndarray,
        max_new_tokens: int,
        stop_token_ids: Sequence[int] | None = None,
        every: int = 8,
    ) -> Iterator[np.ndarray]:
        """Does what `generate` does, and yields the new tokens in pieces: an execution for each.

        Args:
            token_ids: as in `generate`.
            max_new_tokens: as in `generate`.
            stop_token_ids: as in `generate`.
            every: tokens in a piece.

        Yields:
            The next tokens, int32.

        Raises:
            TypeError: as `generate` does.
            ValueError: as `generate` does.
        """
        stops, left = checked_stop_tokens(stop_token_ids), checked_count("max_new_tokens", max_new_tokens)
        every = checked_count("every", every)
        while left > 0:
            piece = self.generate(token_ids, min(every, left), stops)
            yield piece
            left, token_ids = left - every, ()
            if stops is not None and piece[-1] in stops:
                return

    def _checked(self, token_ids: Sequence[int] | np.ndarray) -> np.ndarray:
        given = np.asarray(token_ids)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise ValueError(
                f"`token_ids` is a list of whole numbers, or an array of one dimension. Received: {token_ids!r:.200}."
            )
        if given.size or not self._tokens.size:
            check_prompts(self._model, _arrays(given if given.size else np.zeros(1, np.int32), bool(given.size)))
        return given.astype(np.int32)


class SessionMethods:
    """Methods that every model made in the scope of an `IPUStrategy` has."""

    def ipu_generator(self, max_length: int) -> GeneratorSession:
        """Begins a text that the model continues turn by turn, with its cache of keys and values on the device.

        Args:
            max_length: places for tokens, given and generated ones together.

        Raises:
            TypeError: for a model that is no causal language model of KerasHub's.
            ValueError: for an unknown sampler, one that follows several texts at a time, and more places than the model
                has positions for.
        """
        return GeneratorSession(self, max_length)


def _takes_tokens_alone(build_cache: Any) -> bool:
    try:
        inspect.signature(build_cache).bind(None)
    except TypeError:
        return False
    return True


def _arrays(tokens: np.ndarray, given: bool = True) -> dict[str, np.ndarray]:
    return {"token_ids": tokens[None], "padding_mask": np.full_like(tokens, given)[None]}


def _parts(model: Any) -> tuple[int, ...]:
    """What a traced turn is made of, by `id`: the sampler and the variables."""
    return (id(model.sampler), *map(id, model.variables))


def _padded(count: int, most: int) -> int:
    """Returns the next power of 2: programs are for shapes, so that few are compiled."""
    return min(most, 1 << (count - 1).bit_length())
