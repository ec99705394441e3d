"""Accumulates gradients over micro-batches, reduces them over replicas, then applies the optimizer.

micro-batches    g0 + g1 + ...         on each replica, as the loop goes
replicas                 └─► sum       once an update
optimizer                     └─► `clipnorm`, `clipvalue`, `global_clipnorm`, decay, schedules: once an update
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._state.context import context_value
from ipu_tf._training.accumulation import accumulated, on_update
from ipu_tf.device.instances.across import program_instances
from ipu_tf.device.run.interrupts import Interrupts
from ipu_tf.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_tf.lowering.tensorflow import tf_graphs
from ipu_tf.lowering.tensorflow.tf_private import variables_outside_trace
from ipu_tf.ops.cross_replica_ops import cross_replica_sum, cross_replica_sums

_already_summed: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_already_summed", default=False)


def accumulate_and_apply(
    gradients: Sequence[Any],
    apply: Callable[[list[Any]], Any],
    accumulation_count: int = 1,
    replicas: int = 1,
    method: GradientAccumulationReductionMethod | str = GradientAccumulationReductionMethod.SUM,
    dtype: Callable[[int], tf.DType | None] | None = None,
    names: Sequence[str] = (),
) -> None:
    """Accumulates gradients over the iterations of a loop and over replicas, and applies them when they are complete.

    So `clipnorm`, `clipvalue` and `global_clipnorm` of the optimizer act on complete gradients, not on micro-batches'.

    Args:
        gradients: of this micro-batch on this replica; a None stays one.
        apply: takes the complete gradients and changes variables; called while a step is traced.
        accumulation_count: how many iterations make an update.
        replicas: how many replicas there are.
        method: how gradients of micro-batches are combined; those of replicas are summed.
        dtype: from a gradient's position to the dtype of its accumulator, or None for that of the gradient.
        names: of the weights, for reports; none where they are not known.
    """
    reduction = GradientAccumulationReductionMethod.parse(method)

    def accumulate(position: int, gradient: Any) -> Any:
        if gradient is None or accumulation_count == 1:
            return gradient
        name = names[position] if names else ""
        return accumulated(gradient, accumulation_count, reduction, dtype(position) if dtype else None, name)

    def update() -> None:
        with gradients_reduced():
            apply(_over_replicas(ready, replicas))

    ready = [accumulate(position, gradient) for position, gradient in enumerate(gradients)]
    if accumulation_count == 1:
        update()
    else:
        on_update(accumulation_count, update)


def traced_for_device() -> bool:
    """Returns whether the function that is being traced is part of a device program."""
    return tf_graphs.in_program(tf.compat.v1.get_default_graph())


def gradients_are_reduced() -> bool:
    """Returns whether the gradients that an optimizer applies now are reduced over replicas."""
    return _already_summed.get()


def gradients_reduced() -> contextlib.AbstractContextManager[None]:
    """Context of an optimizer's call that gets gradients which are reduced over replicas."""
    return context_value(_already_summed, True)


def _over_replicas(gradients: Sequence[Any], replicas: int) -> list[Any]:
    """Sums gradients over the replicas of all instances; a None stays one."""
    places = [place for place, gradient in enumerate(gradients) if gradient is not None]
    summed = list(gradients)
    if replicas * program_instances() == 1 or not places:
        return summed
    given = [tf.convert_to_tensor(gradients[place]) for place in places]
    sums = cross_replica_sums(given) if program_instances() > 1 else map(cross_replica_sum, given)
    for place, result in zip(places, sums, strict=True):
        summed[place] = result
    return summed


@contextlib.contextmanager
def variables_created_whole(traced_again: bool = False) -> Iterator[None]:
    """Context in which an optimizer creates slots, or metrics variables: outside of the traced function, uninterrupted.

    Args:
        traced_again: whether `tf.function` notices the variables, and traces the function once more with them.

    Ctrl-C in the middle would leave a Keras optimizer that says it is built, without its slots; and one while the step
    is traced, slots without values, since TensorFlow initializes those when the traced function first runs.

    Raises:
        KeyboardInterrupt: at its end, if Ctrl-C was pressed in it.
    """
    with Interrupts() as interrupts, tf.init_scope() if traced_again else variables_outside_trace():
        yield
    interrupts.check()
