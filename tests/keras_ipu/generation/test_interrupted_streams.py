"""Ctrl-C while tokens are streamed: it ends the wait, the loop goes on, and the model is as usable as before.

An optional extra: `pip install --editable '.[hub]'`. `KERAS_BACKEND=jax pytest` runs it with Keras on JAX.
"""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import numpy as np
import pytest

from tests.helpers.held_streams import GIVEN, LENGTH, PROMPT, Held, gpt2, held, strategy
from tests.helpers.sigint import PressesAtItsEnd, press_ctrl_c, press_when_it_waits, sigint_interrupts

__all__ = ["held", "sigint_interrupts", "strategy"]

pytest.importorskip("keras_hub", reason="KerasHub is not installed: pip install keras-hub")

# Its own imports are older than the packages that it imports.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # KerasHub makes datasets of arrays, and leaves Keras's default for arrays beside them.
    pytest.mark.filterwarnings("ignore:.*shuffle=True. was passed:UserWarning"),
    pytest.mark.usefixtures("sigint_interrupts"),
]


def _expected() -> list[list[int]]:
    """The tokens of stock KerasHub."""
    model = gpt2(contextlib.nullcontext())
    return np.asarray(model.generate(dict(PROMPT), stop_token_ids=None)["token_ids"]).tolist()


def _tokens(model: Any, **options: Any) -> list[list[int]]:
    return np.asarray(model.generate(dict(PROMPT), stop_token_ids=None, **options)["token_ids"]).tolist()


def _wait_for_the_end(stream: Any, model: Any, waiting: str) -> None:
    if waiting == "generate":
        _tokens(model)
    elif waiting == "result":
        stream.result()
    else:
        model.fit(dict(PROMPT), np.full((2, LENGTH), 9, np.int32), batch_size=2, verbose=0)


def test_while_the_next_token_is_waited_for(held: Held, strategy: Any) -> None:
    expected, model = _expected(), gpt2(strategy.scope())
    stream = model.generate(dict(PROMPT), stop_token_ids=None, stream=True)
    first = next(stream)
    press_when_it_waits()
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    assert not held.let_go.is_set() and not stream.done.is_set()
    held.let_go.set()
    assert np.stack([first, *stream], axis=1).tolist() == [row[GIVEN:] for row in expected]
    assert _tokens(model) == expected


@pytest.mark.parametrize("waiting", ["generate", "result", "fit"])
def test_while_something_waits_for_the_end_of_a_stream(waiting: str, held: Held, strategy: Any) -> None:
    expected, model = _expected(), gpt2(strategy.scope())
    before = model.get_weights()
    stream = model.generate(dict(PROMPT), stop_token_ids=None, stream=True)
    next(stream)
    press_when_it_waits()
    with pytest.raises(KeyboardInterrupt):
        _wait_for_the_end(stream, model, waiting)
    assert not held.let_go.is_set() and not stream.done.is_set()
    held.let_go.set()
    assert np.asarray(stream.result()["token_ids"]).tolist() == expected
    for weight, wanted in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, wanted)
    assert _tokens(model) == expected


@pytest.mark.parametrize("waiting", ["result", "fit"])
def test_while_a_finalizer_runs(waiting: str, held: Held, strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python ignores what is raised there: the wait ends all the same."""
    model = gpt2(strategy.scope())
    stream = model.generate(dict(PROMPT), stop_token_ids=None, stream=True)
    next(stream)
    objects, wait = [PressesAtItsEnd()], stream.done.wait

    def wait_without_objects(timeout: float | None = None) -> bool:
        objects.clear()
        return wait(timeout)

    monkeypatch.setattr(stream.done, "wait", wait_without_objects)
    with pytest.raises(KeyboardInterrupt):
        _wait_for_the_end(stream, model, waiting)
    assert not objects and not stream.done.is_set()
    held.let_go.set()
    stream.result()


def test_while_a_function_gets_the_tokens(held: Held, strategy: Any) -> None:
    """It is raised when the loop has ended: the function gets all tokens."""
    expected, model = _expected(), gpt2(strategy.scope())
    places: list[np.ndarray] = []

    def take(tokens: np.ndarray) -> None:
        if not places:
            press_ctrl_c()
            held.soon()
        places.append(tokens)

    with pytest.raises(KeyboardInterrupt):
        _tokens(model, on_tokens=take)
    assert np.stack(places, axis=1).tolist() == [row[GIVEN:] for row in expected]
    assert _tokens(model) == expected
    places = [places[0]]
    assert _tokens(model, on_tokens=take) == expected and len(places) == 1 + LENGTH - GIVEN


def test_a_dropped_stream_does_not_keep_a_model_from_training(held: Held, strategy: Any) -> None:
    """After Ctrl-C a program goes on without the stream."""
    stock, model = gpt2(contextlib.nullcontext()), gpt2(strategy.scope())
    stream = model.generate(dict(PROMPT), stop_token_ids=None, stream=True)
    next(stream)
    press_when_it_waits()
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    del stream
    held.soon()
    for each in (stock, model):
        keras.utils.set_random_seed(2)
        each.fit(dict(PROMPT), np.full((2, LENGTH), 9, np.int32), batch_size=2, verbose=0)
    assert _tokens(model) == _tokens(stock)
