"""What changes or runs a model waits for the end of its stream of tokens, whose loop has the weights of its begin.

An optional extra: `pip install --editable '.[hub]'`. `KERAS_BACKEND=jax pytest` runs it with Keras on JAX.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.helpers.held_streams import (
    GIVEN,
    LENGTH,
    PROMPT,
    Held,
    compile_for,
    gpt2,
    held,
    strategy,
)

__all__ = ["held", "strategy"]

pytest.importorskip("keras_hub", reason="KerasHub is not installed: pip install keras-hub")

# Its own imports are older than the packages that it imports.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # KerasHub makes datasets of arrays, and leaves Keras's default for arrays beside them.
    pytest.mark.filterwarnings("ignore:.*shuffle=True. was passed:UserWarning"),
]


def _new(model: Any) -> list[np.ndarray]:
    return [weight + 1 for weight in model.get_weights()]


def _load(model: Any, folder: Path) -> None:
    model.load_weights(folder / "other.weights.h5")


def _refused_export(model: Any, folder: Path) -> None:
    with pytest.raises(ValueError, match="not empty"):
        model.export_for_ipu_serving(folder, max_length=LENGTH)


#: All of them take less time than the loop is held for.
CHANGES: dict[str, Callable[[Any, Path], Any]] = {
    "set_weights": lambda model, folder: model.set_weights(_new(model)),
    "of a part": lambda model, folder: model.backbone.set_weights(_new(model.backbone)),
    "load_weights": _load,
    "compile": lambda model, folder: compile_for(model, "random"),
    "quantize": lambda model, folder: model.quantize("int8", filters=lambda layer: False),
    "export": _refused_export,
}
IN_CI = "set_weights"
"""Run in the scope too, without asking for slow tests."""


@pytest.mark.parametrize(
    ("change", "within"),
    [
        *(pytest.param(change, False, id=change) for change in CHANGES),
        *(
            pytest.param(change, True, id=f"{change} in the scope", marks=() if change == IN_CI else pytest.mark.slow)
            for change in CHANGES
        ),
    ],
)
def test_a_change_waits_for_the_stream(change: str, within: bool, held: Held, strategy: Any, tmp_path: Path) -> None:
    stock, model = gpt2(contextlib.nullcontext()), gpt2(strategy.scope())
    expected = stock.generate(dict(PROMPT), stop_token_ids=None)["token_ids"]
    stock.set_weights(_new(stock))
    stock.save_weights(tmp_path / "other.weights.h5")
    with strategy.scope() if within else contextlib.nullcontext():
        stream = model.generate(dict(PROMPT), stop_token_ids=None, stream=True)
        first = next(stream)
        held.soon()
        CHANGES[change](model, tmp_path)
        assert held.let_go.is_set()
    assert np.stack([first, *stream], axis=1).tolist() == expected[:, GIVEN:].tolist()
    if "weights" in change:
        for weight, new in zip(model.get_weights(), stock.get_weights(), strict=True):
            np.testing.assert_array_equal(weight, new)


class _Begins(keras.callbacks.Callback):
    """Notes whether tokens were let go when a run begins."""

    def __init__(self, held: Held) -> None:
        super().__init__()
        self.held, self.after = held, list[bool]()

    def on_train_begin(self, logs: Any = None) -> None:
        self.after.append(self.held.let_go.is_set())

    on_test_begin = on_predict_begin = on_train_begin


@pytest.mark.parametrize("doing", ["fit", "predict", pytest.param("evaluate", marks=pytest.mark.slow)])
def test_a_run_waits_for_the_stream(doing: str, held: Held, strategy: Any) -> None:
    stock, model = gpt2(contextlib.nullcontext()), gpt2(strategy.scope())
    expected = stock.generate(dict(PROMPT), stop_token_ids=None)["token_ids"]
    targets = () if doing == "predict" else (np.full((2, LENGTH), 9, np.int32),)
    stream = model.generate(dict(PROMPT), stop_token_ids=None, stream=True)
    first, begins, found = next(stream), _Begins(held), list[Any]()
    held.soon()
    for each in (model, stock):
        callbacks = [begins] if each is model else []
        getattr(each, doing)(dict(PROMPT), *targets, batch_size=2, verbose=0, callbacks=callbacks)
        found.append(each.get_weights())
    assert begins.after == [True]
    assert np.stack([first, *stream], axis=1).tolist() == expected[:, GIVEN:].tolist()
    for weight, wanted in zip(*found, strict=True):
        np.testing.assert_allclose(weight, wanted, rtol=1e-4, atol=1e-5)


def test_batch_methods_and_sessions_wait_for_the_stream(held: Held, strategy: Any) -> None:
    model = gpt2(strategy.scope())
    session = model.ipu_generator(LENGTH)
    for run in (lambda: model.predict_on_batch(dict(PROMPT)), lambda: session.generate([5], 1)):
        held.let_go.set()
        run()  # compiled, so that the next one takes less time than the loop is held for
        held.let_go.clear()
        stream = model.generate(dict(PROMPT), stop_token_ids=None, stream=True)
        next(stream)
        held.soon()
        run()
        assert held.let_go.is_set()
        assert len(list(stream)) == LENGTH - GIVEN - 1


def test_what_is_assigned_meanwhile_stays(held: Held, strategy: Any) -> None:
    """One variable's `assign` does not wait: it counts from the next loop on."""
    model = gpt2(strategy.scope())
    variable = model.backbone.trainable_variables[0]
    stream = model.generate(dict(PROMPT), stop_token_ids=None, stream=True)
    next(stream)
    variable.assign(np.full(variable.shape, 3, np.float32))
    held.let_go.set()
    stream.result()
    assert (np.asarray(variable) == 3).all()


def test_another_model_does_not_wait(held: Held, strategy: Any) -> None:
    model, other = gpt2(strategy.scope()), gpt2(strategy.scope())
    stream = model.generate(dict(PROMPT), stop_token_ids=None, stream=True)
    next(stream)
    other.set_weights(_new(other))
    compile_for(other)
    assert not held.let_go.is_set()
    held.let_go.set()
    stream.result()


def test_callbacks_of_a_run_take_no_stream(strategy: Any) -> None:
    model = gpt2(strategy.scope())
    generate = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: model.generate(dict(PROMPT), stop_token_ids=None, stream=True)
    )
    with pytest.raises(ValueError, match="not in callbacks of a `fit`"):
        model.fit(dict(PROMPT), np.full((2, LENGTH), 9, np.int32), batch_size=2, verbose=0, callbacks=[generate])
