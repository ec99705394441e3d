"""KerasHub's `generate` in the scope: the tokens of stock KerasHub, one execution of one program a call.

An optional extra: `pip install --editable '.[hub]'`. Runs with Keras on TensorFlow; `test_keras_on_jax.py` and
`KERAS_BACKEND=jax pytest` run it with Keras on JAX.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import ipu_tf as ipu
from ipu_tf._loops.output_stream import OutputStream
from ipu_tf.device.feeds.outfeed import Outfeed
from tests.helpers.device_counts import device_work
from tests.helpers.generated_tokens import LENGTH, SAMPLERS, WORDS, check_tokens, gpt2, llama, pair, prompts
from tests.helpers.keras_parity import STOCK_JIT
from tests.helpers.some_ipus import ipus

keras_hub = pytest.importorskip("keras_hub", reason="KerasHub is not installed: pip install keras-hub")

# Its own imports are older than the packages that it imports.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # Keras says so of each layer without weights.
    pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method:UserWarning"),
    # And that embeddings keep their numbers.
    pytest.mark.filterwarnings("ignore:Invalid quantization mode.*quantization_mode=float8:UserWarning"),
]


@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name != "top k"])
def test_tokens_are_those_of_stock_kerashub(sampler: str) -> None:
    check_tokens(gpt2, sampler, prompts(2, 5, 3), stops=(3, 7))


def test_without_stop_tokens_all_places_are_filled(caplog: pytest.LogCaptureFixture) -> None:
    check_tokens(gpt2, "greedy", prompts(2, 5, 3))
    assert "not on the device" not in caplog.text


def test_top_k_draws_one_of_the_likeliest() -> None:
    """On TensorFlow stock's tokens may be others: its kernel gives the candidates in an order of its own."""
    inputs = prompts(2, 5, 3)
    with ipus(1):
        strategy = ipu.ipu_strategy.IPUStrategy()
        stock, ours = pair(gpt2, strategy)
        stock.compile(sampler=keras_hub.samplers.TopKSampler(k=4, seed=5))
        ours.compile(sampler=keras_hub.samplers.TopKSampler(k=4, seed=5))
        expected, tokens = (each.generate(dict(inputs), stop_token_ids=None)["token_ids"] for each in (stock, ours))
        logits = stock.predict({"token_ids": tokens, "padding_mask": np.ones_like(tokens)}, verbose=0)
    likeliest = np.argsort(-logits, axis=-1)[..., :4]
    drawn = (tokens[:, 1:, None] == likeliest[:, :-1]).any(-1)
    assert drawn[inputs["padding_mask"][:, 1:] == 0].all()
    if keras.backend.backend() == "jax":
        assert tokens.tolist() == expected.tolist()


@pytest.mark.parametrize("sampler", ["greedy", "random"])
def test_tokens_do_not_depend_on_the_number_of_replicas(sampler: str) -> None:
    check_tokens(gpt2, sampler, prompts(2, 5, 3), num_ipus=2)


@pytest.mark.parametrize("mode", ["int8", pytest.param("int4", marks=pytest.mark.slow), "float8"])
def test_quantized_weights(mode: str) -> None:
    def quantize(model: Any) -> None:
        model.quantize(mode)
        kernel = model.backbone.transformer_layers[0]._feedforward_output_dense
        assert kernel.dtype_policy.quantization_mode == mode

    check_tokens(gpt2, "greedy", prompts(2, 5, 3), stops=(3, 7), change=quantize)


def test_quantizing_between_calls_compiles_another_program() -> None:
    with ipus(1):
        strategy = ipu.ipu_strategy.IPUStrategy()
        stock, ours = pair(gpt2, strategy)
        tokens = []
        for model in (stock, ours):
            model.compile(sampler="greedy")
            model.generate(prompts(2, 5), stop_token_ids=None)
            model.quantize("int8")
            with device_work() as did:
                tokens.append(model.generate(prompts(2, 5), stop_token_ids=None)["token_ids"].tolist())
    assert tokens[0] == tokens[1]
    assert (did.counts.executions, did.counts.programs) == (1, 1)


# KerasHub makes datasets of arrays, and leaves Keras's default for arrays beside them.
@pytest.mark.filterwarnings("ignore:.*shuffle=True. was passed:UserWarning")
def test_training_changes_what_is_generated_next() -> None:
    inputs, words = prompts(2, 5, 3), np.full((3, LENGTH), 9, np.int32)
    found = []
    with ipus(1):
        strategy = ipu.ipu_strategy.IPUStrategy()
        scopes: tuple[contextlib.AbstractContextManager[Any], ...] = (contextlib.nullcontext(), strategy.scope())
        for model, scope in zip(pair(gpt2, strategy), scopes, strict=True):
            model.backbone.trainable = True
            with scope:
                model.compile(
                    keras.optimizers.SGD(0.02),
                    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                    weighted_metrics=[],
                    sampler="greedy",
                    jit_compile=STOCK_JIT,
                )
                before = model.generate(dict(inputs), stop_token_ids=None)["token_ids"]
                keras.utils.set_random_seed(2)
                model.fit(inputs, words, batch_size=3, epochs=4, verbose=0)
                after = model.generate(dict(inputs), stop_token_ids=None)["token_ids"]
            found.append((before.tolist(), after.tolist()))
    assert found[0] == found[1]
    assert found[1][0] != found[1][1]


def test_a_report_is_that_of_generate() -> None:
    with ipus(1), ipu.ipu_strategy.IPUStrategy().scope(), device_work() as work:
        model = gpt2()
        model.compile(sampler="greedy")
        model.generate(prompts(2, 5), stop_token_ids=None)
        report = model.ipu_report()
    assert work.counts.executions == 1
    assert report.program == f"{model.name}: generate"
    assert report == ipu.reports.last()


def test_a_prompt_of_another_shape_compiles_another_program() -> None:
    with ipus(1):
        strategy = ipu.ipu_strategy.IPUStrategy()
        _, model = pair(gpt2, strategy)
        model.compile(sampler="greedy")
        with device_work() as did:
            for lengths in ((2, 3), (4, 5), (2, 3, 4)):
                model.generate(prompts(*lengths), stop_token_ids=None)
    assert (did.counts.executions, did.counts.programs) == (3, 2)


def test_op_by_op_on_the_host_if_asked_for() -> None:
    """`run_eagerly=True` is KerasHub's own loop in Python, for debugging."""
    with ipus(1):
        strategy = ipu.ipu_strategy.IPUStrategy()
        stock, model = pair(gpt2, strategy)
        stock.compile(sampler="greedy")
        model.compile(sampler="greedy", run_eagerly=True)
        tokens = [each.generate(prompts(2, 5), stop_token_ids=None)["token_ids"] for each in (model, stock)]
    assert tokens[0].tolist() == tokens[1].tolist()


def test_run_eagerly_may_change_between_calls() -> None:
    with ipus(1):
        strategy = ipu.ipu_strategy.IPUStrategy()
        stock, model = pair(gpt2, strategy)
        for each in (stock, model):
            each.compile(sampler="greedy")
        expected = stock.generate(prompts(2, 5), stop_token_ids=None)["token_ids"].tolist()
        executions = []
        for eagerly in (False, True, False):
            model.run_eagerly = eagerly
            with device_work() as did:
                assert model.generate(prompts(2, 5), stop_token_ids=None)["token_ids"].tolist() == expected
            executions.append(did.counts.executions)
    assert executions == [1, 0, 1]


def test_models_outside_the_scope_stay_kerashubs() -> None:
    with ipus(1):
        strategy = ipu.ipu_strategy.IPUStrategy()
        stock, _ = pair(gpt2, strategy)
        stock.compile(sampler="greedy")
        with strategy.scope(), device_work() as did:
            stock.generate(prompts(2, 5), stop_token_ids=None)
    assert did.counts.executions == 0


def test_tokens_come_while_the_loop_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each as stock KerasHub has it, -1 for a prompt's own and after a stop. The loop waits for each to be taken."""
    inputs, places, taken, waited = prompts(3, 5), list[np.ndarray](), threading.Semaphore(0), list[bool]()
    put = Outfeed.put

    def put_and_wait(outfeed: Outfeed, *block: Any) -> None:
        put(outfeed, *block)
        if outfeed.name.startswith("tokens"):
            waited.append(taken.acquire(timeout=60))

    def take(tokens: np.ndarray) -> None:
        places.append(tokens)
        taken.release()

    monkeypatch.setattr(Outfeed, "put", put_and_wait)
    with ipus(1):
        stock, model = pair(gpt2, ipu.ipu_strategy.IPUStrategy())
        for each in (stock, model):
            each.compile(sampler="greedy")
        whole = stock.generate(inputs, stop_token_ids=None)["token_ids"]
        stops = [int(next(token for token in whole[0, 4:] if token != whole[0, 3]))]
        expected = stock.generate(inputs, stop_token_ids=stops)
        with device_work() as did:
            tokens = model.generate(inputs, stop_token_ids=stops, on_tokens=take)
        assert (did.counts.executions, did.counts.programs) == (1, 1)
        assert waited == [True] * len(places) and len(places) > 2
        again = model.generate(inputs, stop_token_ids=stops)
    assert len(waited) == len(places)
    assert [found["token_ids"].tolist() for found in (tokens, again)] == [expected["token_ids"].tolist()] * 2
    new = np.asarray(expected["padding_mask"]).astype(bool) & ~inputs["padding_mask"].astype(bool)
    wanted = np.where(new, expected["token_ids"], -1)[:, 3 : 3 + len(places)]
    assert np.stack(places, axis=1).tolist() == wanted.tolist() and (wanted == -1).any()


def test_tokens_are_iterated_over_while_the_loop_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As stock KerasHub has them. The loop waits until the first was asked for; another call waits for the loop."""
    inputs, asked, ends, put = prompts(3, 5), threading.Event(), list[bool](), Outfeed.put

    def put_and_wait(outfeed: Outfeed, *block: Any) -> None:
        put(outfeed, *block)
        ends.append(asked.wait(timeout=60))

    with ipus(1):
        stock, model = pair(gpt2, ipu.ipu_strategy.IPUStrategy())
        for each in (stock, model):
            each.compile(sampler="greedy")
        whole = stock.generate(inputs, stop_token_ids=None)["token_ids"]
        expected = np.where(inputs["padding_mask"] == 0, whole, -1)[:, 3:].T.tolist()
        with device_work() as did, monkeypatch.context() as patched:
            patched.setattr(Outfeed, "put", put_and_wait)
            tokens = model.generate(inputs, stop_token_ids=None, stream=True)
            assert next(tokens).tolist() == expected[0]
            asked.set()
            assert [each.tolist() for each in tokens] == expected[1:]
            assert tokens.result()["token_ids"].tolist() == whole.tolist() and all(ends)
        assert (did.counts.executions, did.counts.programs) == (1, 1)
        dropped = model.generate(inputs, stop_token_ids=None, stream=True)
        assert model.generate(inputs, stop_token_ids=None)["token_ids"].tolist() == whole.tolist()
        assert [each.tolist() for each in dropped] == expected


def test_threads_get_the_tokens_of_their_own_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one model, one program. The first token waits until both threads have begun."""
    begun, both, put, enter = threading.Semaphore(0), threading.Event(), Outfeed.put, OutputStream.__enter__
    asked = {length: prompts(length) for length in (3, 5)}

    def tokens_of(length: int) -> list[list[int]]:
        places: list[np.ndarray] = []
        model.generate(asked[length], stop_token_ids=None, on_tokens=places.append)
        return [each.tolist() for each in places]

    def entered(stream: Any) -> Any:
        begun.release()
        return enter(stream)

    def put_and_wait(outfeed: Outfeed, *block: Any) -> None:
        if outfeed.name.startswith("tokens") and not both.is_set():
            assert all(begun.acquire(timeout=60) for _ in asked)
            both.set()
        put(outfeed, *block)

    with ipus(1), concurrent.futures.ThreadPoolExecutor(2) as pool:
        _, model = pair(gpt2, ipu.ipu_strategy.IPUStrategy())
        model.compile(sampler="greedy")
        alone = [tokens_of(length) for length in asked]
        monkeypatch.setattr(OutputStream, "__enter__", entered)
        monkeypatch.setattr(Outfeed, "put", put_and_wait)
        assert list(pool.map(tokens_of, asked)) == alone
    assert [len(each) for each in alone] == [LENGTH - 3, LENGTH - 5]


def test_what_streamed_tokens_refuse() -> None:
    def fail(tokens: np.ndarray) -> None:
        raise OSError("the listener is gone")

    with ipus(1):
        _, model = pair(gpt2, ipu.ipu_strategy.IPUStrategy())
        model.compile(sampler="greedy")
        given = {"inputs": prompts(3), "stop_token_ids": None}
        with pytest.raises(OSError, match="the listener is gone"):
            model.generate(**given, on_tokens=fail)
        assert model.generate(**given)["token_ids"].shape == (1, LENGTH)
        with pytest.raises(ValueError, match="give one of them"):
            model.generate(**given, on_tokens=fail, stream=True)
        with pytest.raises(ValueError, match="Received: 99"):
            next(model.generate({**prompts(3), "token_ids": np.full((1, LENGTH), 99)}, None, None, stream=True))
        model.compile(sampler="beam")
        for asked in ({"on_tokens": fail}, {"stream": True}):
            model.run_eagerly = False
            with pytest.raises(ValueError, match=f"`{[*asked][0]}` needs a sampler that chooses one token after the"):
                model.generate(**given, **asked)
            model.run_eagerly = True
            with pytest.raises(ValueError, match=f"`{[*asked][0]}` takes .* has `run_eagerly=True`"):
                model.generate(**given, **asked)


def phi3() -> Any:
    """A model whose class has a `generate` of its own, which calls `CausalLM`'s."""
    sizes = {"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 8, "num_query_heads": 2, "num_key_value_heads": 1}
    backbone = keras_hub.models.Phi3Backbone(vocabulary_size=WORDS, **sizes)
    return keras_hub.models.Phi3CausalLM(backbone=backbone, preprocessor=None)


def test_streamed_tokens_of_a_model_with_its_own_generate() -> None:
    places: list[np.ndarray] = []
    with ipus(1):
        stock, model = pair(phi3, ipu.ipu_strategy.IPUStrategy())
        for each in (stock, model):
            each.compile(sampler="greedy")
        whole = stock.generate(prompts(3), stop_token_ids=None)["token_ids"]
        with device_work() as did:
            model.generate(prompts(3), stop_token_ids=None, on_tokens=places.append)
            streamed = list(model.generate(prompts(3), stop_token_ids=None, stream=True))
    assert np.stack(places, axis=1).tolist() == np.stack(streamed, axis=1).tolist() == whole[:, 3:].tolist()
    assert did.counts.executions == 2


def test_every_model_of_kerashub_takes_on_tokens() -> None:
    """Those that override `generate` are patched one by one: a new one fails here."""
    with ipus(1), ipu.ipu_strategy.IPUStrategy().scope():
        classes = [keras_hub.models.CausalLM]
        for each in classes:
            classes += each.__subclasses__()
    of_the_library = [each for each in classes if each.__module__.startswith("keras_hub.")]
    own = [each for each in of_the_library if "generate" in vars(each)]
    assert len(of_the_library) > 20 and len(own) > 1
    assert [each.__name__ for each in own if not hasattr(each.generate, "__wrapped__")] == []


@pytest.mark.slow
def test_tokens_of_several_replicas_come_once() -> None:
    places: list[np.ndarray] = []
    with ipus(2):
        stock, model = pair(gpt2, ipu.ipu_strategy.IPUStrategy())
        for each in (stock, model):
            each.compile(sampler="greedy")
        if keras.backend.backend() == "jax":
            with pytest.raises(ValueError, match="takes one replica. Received: 2 replicas"):
                model.generate(prompts(3), stop_token_ids=None, on_tokens=places.append)
            return
        model.generate(prompts(3), stop_token_ids=None, on_tokens=places.append)
        whole = stock.generate(prompts(3), stop_token_ids=None)["token_ids"]
    assert np.stack(places, axis=1).tolist() == whole[:, 3:].tolist()


SESSION_LENGTH = 12


@pytest.mark.parametrize("make", [gpt2, pytest.param(llama, marks=pytest.mark.slow)])
def test_turns_of_a_session_give_the_tokens_of_the_whole_text(make: Callable[[], Any]) -> None:
    """Each turn is one execution, and reads new tokens only; stock KerasHub is given all that was said before."""
    with ipus(1):
        stock, model = pair(make, ipu.ipu_strategy.IPUStrategy())
        for each in (stock, model):
            each.compile(sampler="greedy")
        session = model.ipu_generator(max_length=SESSION_LENGTH)
        text: list[int] = []
        with device_work() as did:
            for said, count in (([5, 8, 2], 3), ([9], 2), ([], 1)):
                text += said
                new = session.generate(said, count)
                ids, mask = np.zeros((2, 1, SESSION_LENGTH), np.int32)
                ids[0, : len(text)], mask[0, : len(text)] = text, 1
                whole = stock.generate({"token_ids": ids, "padding_mask": mask}, stop_token_ids=None)["token_ids"]
                assert new.tolist() == whole[0, len(text) : len(text) + count].tolist()
                text += new.tolist()
                assert session.tokens.tolist() == text
        # Of 4, 2 and 1 tokens to read.
        assert (did.counts.executions, did.counts.programs) == (3, 3)


def test_a_session_streams_pieces_until_a_stop() -> None:
    inputs = prompts(3)
    said = inputs["token_ids"][0, :3]
    with ipus(1):
        stock, model = pair(gpt2, ipu.ipu_strategy.IPUStrategy())
        for each in (stock, model):
            each.compile(sampler="greedy")
        whole = stock.generate(inputs, stop_token_ids=None)["token_ids"][0, 3:].tolist()
        stop = next(token for place, token in enumerate(whole) if place > 1 and token not in whole[:place])
        session = model.ipu_generator(SESSION_LENGTH)
        pieces = [piece.tolist() for piece in session.stream(said, 9, stop_token_ids=[stop], every=2)]
    assert sum(pieces, []) == whole[: whole.index(stop) + 1]
    assert len(pieces) > 1 and all(len(piece) <= 2 for piece in pieces)


def test_what_a_session_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with ipus(1):
        stock, model = pair(gpt2, ipu.ipu_strategy.IPUStrategy())
        with pytest.raises(AttributeError, match="only models of an `IPUStrategy`'s scope have it"):
            stock.ipu_generator(8)
        model.compile(sampler="beam")
        with pytest.raises(ValueError, match="one token after the other, .* Received: BeamSampler"):
            model.ipu_generator(8)
        model.compile(sampler="greedy")
        with pytest.raises(ValueError, match=f"has positions for {LENGTH} tokens"):
            model.ipu_generator(LENGTH + 1)
        with pytest.raises(TypeError, match="causal language model of KerasHub's"):
            model.backbone.ipu_generator(8)
        with monkeypatch.context() as patched:
            patched.setattr(type(model), "_build_cache", lambda self, tokens, images: None)
            with pytest.raises(TypeError, match="whose cache takes more, such as images. Use its `generate`"):
                model.ipu_generator(8)
        session = model.ipu_generator(8)
        for said, text in (
            ([], "at least one token"),
            ([WORDS], "below 40"),
            (np.array([2**32 + 5]), "below 40"),
            ([1.5], "whole numbers"),
            ([[1]], "one dimension"),
        ):
            with pytest.raises(ValueError, match=text):
                session.generate(said, 2)
        with pytest.raises(ValueError, match="has 8 places, and 3 tokens and 6 new ones need 9"):
            session.generate([1, 2, 3], 6)
        model.compile(sampler="greedy")
        with pytest.raises(ValueError, match="compiled or quantised since"):
            session.generate([1], 1)
