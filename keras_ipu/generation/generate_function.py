"""`GenerateFunction`: runs a language model's `generate_step` on the device, one compiled loop over tokens a call.

    prompt [batch, length] --> encode, fill the cache --> loop: next token, until all stop or length --> tokens

Shapes and stop tokens are part of the program: a prompt of another length or batch size compiles another one.
"""

from __future__ import annotations

import abc
import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ipu_tf._loops.batch_feed import BatchFeed
from ipu_tf._loops.interruption import InterruptibleCall, check_interrupts
from ipu_tf._loops.output_stream import LiveOutfeed
from ipu_tf._loops.step_loop import DeviceStep, LoopOptions, StepLoop
from ipu_tf._state.context import context_value
from ipu_tf._training.replication import target
from keras_ipu.generation.prompt_checks import (
    StopTokens,
    check_prompts,
    check_sampler,
    checked_stop_tokens,
)
from keras_ipu.generation.token_iterator import TokenIterator
from keras_ipu.generation.token_stream import NewTokens, OnTokens, each_token
from keras_ipu.stock import models as keras_models
from keras_ipu.training.common.outputs_for_keras import ArrayFunctions
from keras_ipu.training.common.running_streams import begins, wait_for_streams
from keras_ipu.training.common.step_split import StepSplit, step_split
from keras_ipu.training.common.traced_loops import TracedLoops

_streamed: contextvars.ContextVar[tuple[object, OnTokens] | None] = contextvars.ContextVar(
    "ipu_on_tokens", default=None
)
"""The function of this thread whose tokens are passed on, and what takes them. KerasHub's code is between both."""


class GenerateFunction(TracedLoops, abc.ABC):
    """Compiled generation of a model, which replaces KerasHub's own in `generate`.

    With several replicas each one generates for the whole prompt: tokens do not depend on the number of replicas.

    Args:
        model: the model.
        arrays: functions on the arrays that come back.
        compute: what is traced, of inputs and stop tokens; by default the model's `generate_step`.
        variables: that it changes, besides those of the model and its sampler.
    """

    def __init__(
        self,
        model: Any,
        arrays: ArrayFunctions,
        compute: Callable[[Any, StopTokens], Any] | None = None,
        variables: Sequence[Any] = (),
    ) -> None:
        super().__init__()
        self._model = model
        self._arrays = arrays
        self._compute = compute or model.generate_step
        self._own_variables = tuple(variables)
        self._stream = LiveOutfeed(f"tokens {id(self)}")
        self._one_call = threading.Lock()  # a call takes over the state from the call before

    def __call__(self, inputs: Any, stop_token_ids: Sequence[int] | None = None) -> Any:
        """Generates tokens in one execution.

        Args:
            inputs: structure of arrays of fixed shape as the model's preprocessor makes them: `token_ids`, a whole
                number for each place of `[batch, length]`, and `padding_mask`, nonzero where the prompt is.
            stop_token_ids: tokens at which a sequence ends; None to fill all places.

        Returns:
            What `generate_step` returns: tokens, and the mask of those before the stop.

        Raises:
            TypeError: if stop tokens are not whole numbers in a list or tuple.
            ValueError: for an unknown sampler, and prompts that the model cannot continue, see `check_prompts`.
        """
        stops = checked_stop_tokens(stop_token_ids)
        check_sampler(self._model)
        check_prompts(self._model, inputs)
        return self.run(inputs, stops)

    def streamed(self, on_tokens: OnTokens) -> contextlib.AbstractContextManager[None]:
        """Context in which a function gets the tokens of each place, `[batch]`, as they are made; see `NewTokens`.

        It is that of this thread's calls: others may have theirs at the same time.
        """
        return context_value(_streamed, (self, on_tokens))

    @property
    def _on_tokens(self) -> OnTokens | None:
        """What takes the tokens of this thread's calls, if anything does."""
        function, on_tokens = _streamed.get() or (None, None)
        return on_tokens if function is self else None

    def stream(self, generate: Callable[[OnTokens], Any]) -> TokenIterator:
        """Returns an iterator over the tokens of a call, which runs in a thread of its own."""
        tokens = TokenIterator(generate)
        begins(self._model, tokens.thread, tokens.done)
        return tokens

    def run(self, inputs: Any, stops: StopTokens) -> Any:
        """Runs what is traced for inputs that are checked, in one execution, after a stream that runs has ended."""
        wait_for_streams(self._model)
        with InterruptibleCall(), self._running():
            check_interrupts()
            return self._generate(inputs, stops)

    @abc.abstractmethod
    def _running(self) -> contextlib.AbstractContextManager[None]:
        """Context of a call."""

    @abc.abstractmethod
    def _feed(self, batches: Iterator[Any]) -> BatchFeed:
        """Returns a feed of the inputs, one for each replica."""

    @abc.abstractmethod
    def _step(self, spec: Any, stops: StopTokens, split: StepSplit) -> DeviceStep:
        """Returns `generate_step` for inputs of a structure and shape."""

    def _state(self, replicas: int) -> Any:
        """Returns the state that the device takes over: `()` where it is in variables."""
        return ()

    def _keep(self, state: Any, replicas: int) -> None:  # noqa: B027 - state in variables is kept already
        """Keeps the state that a call ends with."""

    def _generate(self, inputs: Any, stops: StopTokens) -> Any:
        split = step_split(self._model)
        feed = self._feed(iter([inputs] * split.replicas))
        loop = self._loop(feed, stops, split)
        with self._tokens_taken(inputs, stops, split.replicas), self._one_call:
            ran = loop.run(self._state(split.replicas), feed, 1)
            self._keep(ran.state, split.replicas)
        tokens = ran.raise_for_error().outputs
        return tokens if split.replicas == 1 else self._arrays.map_structure(lambda array: array[0], tokens)

    def _tokens_taken(self, inputs: Any, stops: StopTokens, replicas: int) -> contextlib.AbstractContextManager[None]:
        """Returns the context of an execution, in which tokens are passed on as they are made."""
        if self._on_tokens is None:
            return contextlib.nullcontext()
        new = NewTokens(self._on_tokens, inputs, stops)
        return self._stream.taken(lambda element: new.take(element[0] if replicas == 1 else element[0][0]))

    def _tokens_enqueued(self, enqueue: Callable[[Any], None]) -> contextlib.AbstractContextManager[None]:
        """Returns the context of a trace, in which tokens are enqueued if something takes them."""
        return contextlib.nullcontext() if self._on_tokens is None else each_token(self._model.sampler, enqueue)

    def _loop(self, feed: BatchFeed, stops: StopTokens, split: StepSplit) -> StepLoop:
        """Returns the loop for inputs and stop tokens, traced on first use."""
        options = LoopOptions(keras_models.strategy_of(self._model).device_ordinal, split.shards)
        streamed = self._on_tokens is not None
        key = (feed.spec_name, stops, split, options, target(options.ordinal, split.shards), streamed)
        title = f"{self._model.name}: generate"
        step = functools.partial(self._step, feed.spec(), stops, split)
        return self._traced(key, feed, lambda: StepLoop(step(), options, title), stop_token_ids=stops, **vars(split))
