"""The seams of a pipeline: markers on what one stage hands to the next, and on the gradients that come back.

    stage 0 ──► marker 0 ──► stage 1 ──► marker 1 ──► loss
            ◄── marker 0 ◄──         ◄── marker 1 ◄──

A marker gives what it takes. Where a program runs as a loop on one device it means nothing; where each stage has a
device of its own, a micro-batch is cut there.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from ipu_tf.lowering.markers import marker
from ipu_tf.lowering.stage_marks import STAGE_BOUNDARY, Mark


@dataclasses.dataclass(frozen=True)
class Seams:
    """Where a pipeline may be cut.

    Attributes:
        stages: how many stages it has.
        mapping: the device of each stage, `ALL_DEVICES`, or a tuple of devices for a stage of parallel parts.
        schedule: the number of the schedule, see `ipu_tf.pipeline.Schedule`.
        training: whether gradients come back.
        count: micro-batches to an update, or to a run of the schedule in inference; 0 for a number that is known only
            when the program runs.
    """

    stages: int
    mapping: tuple[Any, ...]
    schedule: int
    training: bool
    count: int

    def after(self, stage: int, values: Any) -> Any:
        """What a stage gives, marked: a structure of tensors, in which operations and None stay as they are.

        Args:
            stage: the stage's number. After the last stage comes the loss.
            values: the structure.
        """
        return tf.nest.map_structure(lambda value: self._marked(stage, value), values)

    def _marked(self, stage: int, value: Any) -> Any:
        if value is None or isinstance(value, tf.Operation):
            return value
        tensor = tf.convert_to_tensor(value)
        if not (tensor.dtype.is_floating or tensor.dtype.is_complex):
            return self._marker(tensor, stage, backward=False)

        @tf.custom_gradient
        def seam(inside: tf.Tensor) -> Any:
            def gradient(upstream: tf.Tensor) -> tf.Tensor:
                return self._marker(upstream, stage, backward=True)

            return self._marker(inside, stage, backward=False), gradient

        return seam(tensor)

    def _marker(self, tensor: tf.Tensor, stage: int, backward: bool) -> tf.Tensor:
        mark = Mark(self.stages, self.mapping, self.schedule, self.training, self.count, stage, backward)
        [marked] = marker(
            STAGE_BOUNDARY, [tensor], [tf.TensorSpec(tensor.shape, tensor.dtype)], **dataclasses.asdict(mark)
        )
        return marked
