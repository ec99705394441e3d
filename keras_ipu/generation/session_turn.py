"""`SessionTurn`: one turn of a text as it is traced: new tokens into the cache, then the next tokens."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_ipu.generation.prompt_checks import StopTokens


class SessionTurn:
    """A turn of a `GeneratorSession`.

    Args:
        model: the language model.
        max_length: places for tokens.

    Attributes:
        cache: a variable with the keys and values of the tokens that were read.
    """

    def __init__(self, model: Any, max_length: int) -> None:
        self._model, self._max_length = model, max_length
        self.cache = _empty_cache(model, max_length)

    def compute(self, inputs: Any, stops: StopTokens) -> Any:
        """Reads tokens into the cache and generates the next ones; traced."""
        model, sampler, read = self._model, self._model.sampler, inputs["read"]
        start, index, end = (inputs["numbers"][0, place] for place in range(3))
        _, _, cache = model.call_with_cache(read, self.cache, start)
        token = ops.slice(read, [0, index - 1 - start], [1, 1])
        buffer = ops.zeros((1, self._max_length), "int32")

        def cond(token: Any, buffer: Any, cache: Any, index: Any, stopped: Any) -> Any:
            return ops.logical_and(index < end, ops.logical_not(stopped))

        def body(token: Any, buffer: Any, cache: Any, index: Any, stopped: Any) -> Any:
            logits, _, cache = model.call_with_cache(token, cache, index - 1)
            chosen = sampler.get_next_token(sampler.compute_probabilities(ops.squeeze(logits, axis=1)))
            token = ops.cast(chosen, "int32")[:, None]
            if stops is not None:
                stopped = ops.any(ops.equal(token, ops.convert_to_tensor([list(stops)], "int32")))
            return token, ops.slice_update(buffer, [0, index], token), cache, index + 1, stopped

        state = (token, buffer, cache, index, ops.convert_to_tensor(False))
        _, buffer, cache, index, _ = sampler.run_loop(cond, body, loop_vars=state, model=model)
        self.cache.assign(cache)
        return buffer, ops.reshape(index, (1,))


class _Prefill(keras.Operation):
    """Fills a cache; Keras finds the shape of what it gives."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._fill = model._build_cache

    def call(self, tokens: Any) -> Any:
        return self._fill(tokens)


def _empty_cache(model: Any, length: int) -> Any:
    """A variable for the keys and values of one text."""
    tokens = keras.KerasTensor((1, length), "int32")
    _, cache = _Prefill(model).compute_output_spec(tokens)
    return keras.Variable(np.zeros(cache.shape, cache.dtype), dtype=cache.dtype, trainable=False, name="cache")
