"""Marks tensors at stage boundaries, and their gradients, for cutting a pipeline into stages.

    stage 0 ──► marker 0 ──► stage 1 ──► marker 1 ──► loss
            ◄── marker 0 ◄──         ◄── marker 1 ◄──

A marker is an identity. In a program that runs as a loop on one device it has no effect; where each stage has a
device of its own, the program is cut into stages there.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ipu_tf._state.context import context_value
from ipu_tf.device.schedule.timetable import Recomputation
from ipu_tf.lowering.stablehlo.stage_markers import CHECKPOINT, STAGE_BOUNDARY, StageMarker
from ipu_tf.lowering.tensorflow.markers import marker

_recomputing: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_stages_recompute", default=False)


@dataclasses.dataclass(frozen=True)
class StageBoundaries:
    """Inserts markers at the stage boundaries of a pipeline.

    Attributes:
        stages: how many stages it has.
        mapping: the device of each stage, `ALL_DEVICES`, or a tuple of devices for a stage of parallel parts.
        schedule: the number of the schedule, see `ipu_tf.pipeline.Schedule`.
        training: whether gradients come back.
        count: micro-batches to an update, or to a run of the schedule in inference; 0 for a number that is known only
            when the program runs.
        recomputation: how activations come to be there for backward passes. By default they are kept.
    """

    stages: int
    mapping: tuple[Any, ...]
    schedule: int
    training: bool
    count: int
    recomputation: Recomputation = Recomputation.NONE

    def mark_outputs(self, stage: int, values: Any) -> Any:
        """Marks the outputs of a stage; operations and None are passed through.

        Args:
            stage: the stage's number. After the last stage comes the loss.
            values: the structure.
        """
        return tf.nest.map_structure(lambda value: self._marked(stage, value), values)

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Scope in which stages are traced: `checkpoint` marks tensors if the stages recompute activations."""
        with context_value(_recomputing, self.training and self.recomputation is not Recomputation.NONE):
            yield

    def _marked(self, stage: int, value: Any) -> Any:
        if value is None or isinstance(value, tf.Operation):
            return value
        return _marked(value, lambda tensor, backward: self._marker(tensor, stage, backward))

    def _marker(self, tensor: tf.Tensor, stage: int, backward: bool) -> tf.Tensor:
        mark = StageMarker(
            stages=self.stages,
            mapping=self.mapping,
            schedule=self.schedule,
            training=self.training,
            count=self.count,
            stage=stage,
            backward=backward,
            recomputation=self.recomputation.name,
        )
        return _same(STAGE_BOUNDARY, tensor, **dataclasses.asdict(mark))


def checkpoint(tensor: tf.Tensor) -> tf.Tensor:
    """Marks a tensor to be kept where its stage recomputes activations; elsewhere an identity."""
    if not _recomputing.get():
        return tensor
    return _marked(tensor, lambda inside, backward: inside if backward else _same(CHECKPOINT, inside))


def _marked(value: Any, mark: Callable[[tf.Tensor, bool], tf.Tensor]) -> tf.Tensor:
    """Marks a tensor in the forward pass, and its gradient in the backward pass."""
    tensor = tf.convert_to_tensor(value)
    if not (tensor.dtype.is_floating or tensor.dtype.is_complex):
        return mark(tensor, False)

    @tf.custom_gradient
    def marked(inside: tf.Tensor) -> Any:
        return mark(inside, False), lambda upstream: mark(upstream, True)

    return marked(tensor)


def _same(target: str, tensor: tf.Tensor, **attributes: Any) -> tf.Tensor:
    [marked] = marker(target, [tensor], [tf.TensorSpec(tensor.shape, tensor.dtype)], **attributes)
    return marked
