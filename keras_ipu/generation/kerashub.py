"""Runs `generate` of KerasHub's language models on the device, with Keras on TensorFlow and on JAX.

Replaces `CausalLM.make_generate_function` once KerasHub is imported. On TensorFlow a model's variables stay on the
device in a call; on JAX they are passed to the device and back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import keras

from ipu_tf._loops.jax_feed import JaxFeed
from ipu_tf._loops.jax_step import AccumulationSettings, GradientUpdates, JaxStep, refusals_at_lines
from ipu_tf._loops.tensor_feed import TensorFeed
from ipu_tf._loops.tensorflow_step import TensorFlowStep, flush_variables
from ipu_tf._patches.import_hooks import after_import
from keras_ipu.generation.generate_function import GenerateFunction
from keras_ipu.generation.prompt_checks import StopTokens
from keras_ipu.stock import models as keras_models
from keras_ipu.stock import patches as keras_patches
from keras_ipu.stock.ownership import is_ipu_model
from keras_ipu.training.common.data_checks import warn_cast
from keras_ipu.training.common.eager_runs import runs_eagerly
from keras_ipu.training.common.step_split import StepSplit
from keras_ipu.training.jax.array_functions import ARRAYS
from keras_ipu.training.jax.state import ReplicaState, replica_state_of, separate
from keras_ipu.training.tensorflow.tensor_functions import TENSORS

_MODULE = "keras_hub.src.models.causal_lm"
"""Where KerasHub defines `CausalLM`, whose method its language models inherit: decoders, and encoders with decoders."""
State = list[Any]


def patch_generate() -> None:
    """Makes `generate` of IPU models run on the device; of other models it stays KerasHub's. Idempotent."""
    after_import(_MODULE, _patch_causal_lm)


def _patch_causal_lm(module: ModuleType) -> None:
    keras_patches.patch_method(module.CausalLM, "make_generate_function", is_ipu_model, _make_generate_function)


def _make_generate_function(stock: Callable[[Any], Any], model: Any) -> Any:
    """Replaces `make_generate_function`: `compile`, `quantize` and a new `run_eagerly` forget its function."""
    now = model.generate_function
    if runs_eagerly(model):
        if isinstance(now, GenerateFunction):
            model.generate_function = None  # `run_eagerly` was set since: KerasHub would keep the compiled one
        return stock(model)
    if not isinstance(now, GenerateFunction):
        model.generate_function = _FUNCTIONS[keras.backend.backend()](model)
    return model.generate_function


class TensorFlowGenerateFunction(GenerateFunction):
    """`GenerateFunction` whose step TensorFlow traces.

    Args:
        model: the model.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model, TENSORS)

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        try:
            yield
        finally:
            flush_variables()

    def _feed(self, batches: Iterator[Any]) -> TensorFeed:
        return TensorFeed(batches, warn_cast)

    def _step(self, spec: Any, stops: StopTokens, split: StepSplit) -> TensorFlowStep:
        model = self._model

        def step(inputs: Any) -> Any:
            with keras_models.strategy_of(model).replica_context():
                return model.generate_step(inputs, stops)

        return TensorFlowStep(step, spec)


class JaxGenerateFunction(GenerateFunction):
    """`GenerateFunction` whose step JAX traces. Its state is what the model's and the sampler's variables hold.

    Args:
        model: the model.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model, ARRAYS)
        self._replicas: ReplicaState = replica_state_of(model)

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        separate(self._model)
        with refusals_at_lines():
            yield

    def _feed(self, batches: Iterator[Any]) -> JaxFeed:
        return JaxFeed(batches, warn_cast)

    def _variables(self) -> list[Any]:
        return [*self._model.variables, *self._model.sampler.variables]

    def _state(self, replicas: int) -> State:
        return self._replicas.all_replicas_state([variable.value for variable in self._variables()], replicas)

    def _keep(self, state: State, replicas: int) -> None:
        for variable, value in zip(self._variables(), self._replicas.shown(state, replicas), strict=True):
            variable.assign(value)

    def _step(self, spec: Any, stops: StopTokens, split: StepSplit) -> JaxStep:
        model, variables = self._model, self._variables()

        def step(state: State, inputs: Any, updates: GradientUpdates) -> tuple[Any, State]:
            with keras.StatelessScope(list(zip(variables, state, strict=True))) as scope:
                outputs = model.generate_step(inputs, stops)
            after = [scope.get_current_value(variable) for variable in variables]
            return outputs, [old if new is None else new for old, new in zip(state, after, strict=True)]

        return JaxStep(
            step, [variable.value for variable in variables], spec, AccumulationSettings(replicas=split.replicas)
        )


_FUNCTIONS = {"tensorflow": TensorFlowGenerateFunction, "jax": JaxGenerateFunction}
"""By Keras's back end."""
