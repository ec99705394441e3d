"""`barrier`: control dependencies between ops inside of a program."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf._config.ignored_arguments import record_ignored


def barrier(tensors: Any, insert_barrier_for_gradients: bool = False, name: str | None = None) -> Any:
    """Identity of tensors once all of them are computed: users of one result run after all the others.

    Args:
        tensors: a tensor, or a structure of them.
        insert_barrier_for_gradients: whether their gradients wait for each other too; without effect in emulation.
        name: scope of the ops' names; `barrier` by default.

    Returns:
        Tensors equal to `tensors`, in its structure.

    Example:
        >>> import tensorflow as tf
        >>> from ipu_tf.ops.control_flow_ops import barrier
        >>> [float(x) for x in barrier([tf.constant(1.0), tf.constant(2.0)])]
        [1.0, 2.0]
    """
    record_ignored("barrier.insert_barrier_for_gradients", insert_barrier_for_gradients or None)
    flat = [tf.convert_to_tensor(tensor) for tensor in tf.nest.flatten(tensors)]
    with tf.name_scope(name or "barrier"), tf.control_dependencies(flat):
        return tf.nest.pack_sequence_as(tensors, [tf.identity(tensor) for tensor in flat])
