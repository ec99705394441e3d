"""`TensorFlowGenerateFunction`: KerasHub's `generate` on the device, with Keras on TensorFlow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ipu_tf._data.narrow_dtypes import warn_cast
from ipu_tf._loops.tensor_feed import TensorFeed
from ipu_tf._loops.tensorflow_step import TensorFlowStep, flush_variables
from keras_ipu.generation.generate_function import GenerateFunction
from keras_ipu.generation.packed_layers import packed_products
from keras_ipu.generation.prompt_checks import StopTokens
from keras_ipu.stock import models as keras_models
from keras_ipu.training.common.step_split import StepSplit
from keras_ipu.training.tensorflow.tensor_functions import TENSORS


class TensorFlowGenerateFunction(GenerateFunction):
    """`GenerateFunction` whose step TensorFlow traces. The model's variables stay on the device in a call.

    Args:
        model: the model.
        *traced: what is traced instead of `generate_step`, and its variables, as in `GenerateFunction`.
    """

    def __init__(self, model: Any, *traced: Any) -> None:
        super().__init__(model, TENSORS, *traced)

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
            streamed = self._tokens_enqueued(self._stream.enqueue_tensor)
            with keras_models.strategy_of(model).replica_context(), packed_products(), streamed:
                return self._compute(inputs, stops)

        return TensorFlowStep(step, spec)
