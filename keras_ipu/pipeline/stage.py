"""`PipelineStage`: the scope that puts layers on a stage of a pipeline."""

from __future__ import annotations

from contextvars import Token
from types import TracebackType

import tensorflow as tf

from ipu_tf.ipu_strategy import IPUStrategyV1
from keras_ipu.pipeline.stage_scopes import current_stage, enter_stage, leave_stage


class PipelineStage:
    """Scope whose layers, and layer calls, belong to a stage of the model's pipeline.

    A scope around a call overrides the one around the making of the layer. Either all layers of a model have a stage
    or none has.

    Args:
        stage: the stage, from 0.

    Example:
        with strategy.scope():
            inputs = keras.Input((32,))
            with PipelineStage(0):
                x = keras.layers.Dense(16)(inputs)
            with PipelineStage(1):
                x = keras.layers.Dense(8)(x)
            model = keras.Model(inputs, x)
    """

    def __init__(self, stage: int) -> None:
        self._stage = stage
        self._token: Token[int | None] | None = None

    def __enter__(self) -> PipelineStage:
        """Enters the scope.

        Raises:
            ValueError: for a negative stage.
            RuntimeError: outside of an `IPUStrategy`'s scope, or within another `PipelineStage`.
        """
        if self._stage < 0:
            raise ValueError(f"{self._stage} is not a valid pipeline stage.")
        if not isinstance(tf.distribute.get_strategy(), IPUStrategyV1):
            raise RuntimeError("PipelineStage may only be used from within an IPUStrategy context.")
        if current_stage() is not None:
            raise RuntimeError("Pipeline stages must not be nested.")
        self._token = enter_stage(self._stage)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leaves the scope."""
        assert self._token is not None
        leave_stage(self._token)
        self._token = None
