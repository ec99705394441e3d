"""`JaxGenerateFunction`: KerasHub's `generate` on the device, with Keras on JAX."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from ipu_tf._data.narrow_dtypes import warn_cast
from ipu_tf._loops.jax_feed import JaxFeed
from ipu_tf._loops.jax_step import AccumulationSettings, GradientUpdates, JaxStep, refusals_at_lines
from keras_ipu.generation.generate_function import GenerateFunction
from keras_ipu.generation.packed_layers import packed_products
from keras_ipu.generation.prompt_checks import StopTokens
from keras_ipu.training.common.step_split import StepSplit
from keras_ipu.training.jax.array_functions import ARRAYS
from keras_ipu.training.jax.state import ReplicaState, replica_state_of, separate

State = list[Any]


class JaxGenerateFunction(GenerateFunction):
    """`GenerateFunction` whose step JAX traces. Its state is what the model's and the sampler's variables hold.

    In each call the state is passed to the device and back.

    Args:
        model: the model.
        *traced: what is traced instead of `generate_step`, and its variables, as in `GenerateFunction`.
    """

    def __init__(self, model: Any, *traced: Any) -> None:
        super().__init__(model, ARRAYS, *traced)
        self._replicas: ReplicaState = replica_state_of(model)
        self._given: list[tuple[Any, Any]] = []

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        separate(self._model)
        with refusals_at_lines():
            yield

    def _feed(self, batches: Iterator[Any]) -> JaxFeed:
        return JaxFeed(batches, warn_cast)

    def _variables(self) -> list[Any]:
        return [*self._model.variables, *self._model.sampler.variables, *self._own_variables]

    def _state(self, replicas: int) -> State:
        self._given = [(variable, variable.value) for variable in self._variables()]
        return self._replicas.all_replicas_state([value for _, value in self._given], replicas)

    def _keep(self, state: State, replicas: int) -> None:
        for (variable, given), value in zip(self._given, self._replicas.shown(state, replicas), strict=True):
            if variable.value is given:  # what was assigned while the loop ran stays
                variable.assign(value)
        self._given = []

    def _step(self, spec: Any, stops: StopTokens, split: StepSplit) -> JaxStep:
        variables = self._variables()
        if self._on_tokens is not None and split.replicas > 1:  # JAX maps such loops over replicas
            raise ValueError(f"`on_tokens` with Keras on JAX takes one replica. Received: {split.replicas} replicas.")

        def step(state: State, inputs: Any, updates: GradientUpdates) -> tuple[Any, State]:
            streamed = self._tokens_enqueued(lambda tokens: self._stream.enqueue_array(tokens, split.replicas))
            with keras.StatelessScope(list(zip(variables, state, strict=True))) as scope, packed_products(), streamed:
                outputs = self._compute(inputs, stops)
            after = [scope.get_current_value(variable) for variable in variables]
            return outputs, [old if new is None else new for old, new in zip(state, after, strict=True)]

        return JaxStep(
            step, [variable.value for variable in variables], spec, AccumulationSettings(replicas=split.replicas)
        )
