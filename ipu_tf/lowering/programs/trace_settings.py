"""`TraceSettings`: what a traced graph took from the device's configuration, as notes on ops of the graph.

A graph is traced once, and may run after the device was configured anew.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from ipu_tf.lowering.programs.program_target import Target
from ipu_tf.lowering.tensorflow import tf_graphs

_ONE_REPLICA = "_ipu_one_replica"
_NORM_GROUP = "_ipu_norm_group"


def noted_as_of_one_replica(value: Any) -> Any:
    """Returns a value, which is not reduced over replicas since there is one, with a note of that in the graph."""
    return _noted(value, _ONE_REPLICA, 1)


def noted_norm_group(value: tf.Tensor, group: int) -> tf.Tensor:
    """Returns a tensor of a batch normalisation, with a note over how many replicas that takes its statistics."""
    noted: tf.Tensor = _noted(value, _NORM_GROUP, group)
    return noted


def _noted(value: Any, name: str, number: int) -> Any:
    if value is None or tf.executing_eagerly():
        return value
    noted = tf.identity(value)
    for part in tf.nest.flatten(noted, expand_composites=True):
        tf_graphs.set_attribute(part.op, name, tf.compat.v1.AttrValue(i=number))
    return noted


@dataclasses.dataclass(frozen=True)
class TraceSettings:
    """What a graph took from the configuration that it was traced under.

    Attributes:
        one_replica: whether it leaves out a reduction over replicas, since there was one.
        norm_groups: over how many replicas its batch normalisations take their statistics.
    """

    one_replica: bool
    norm_groups: frozenset[int]

    @classmethod
    def of(cls, graph_def: tf.compat.v1.GraphDef) -> TraceSettings:
        """Reads the notes of a graph, and of the functions, loops and branches in it."""
        bodies = [graph_def.node, *(function.node_def for function in graph_def.library.function)]
        noted = [node.attr for nodes in bodies for node in nodes if node.op == "Identity"]
        groups = frozenset(int(attributes[_NORM_GROUP].i) for attributes in noted if _NORM_GROUP in attributes)
        return cls(any(_ONE_REPLICA in attributes for attributes in noted), groups)

    def check(self, target: Target) -> None:
        """Checks that the graph is right for a target.

        Raises:
            tf.errors.FailedPreconditionError: if it was traced for another number of replicas, or other groups.
        """
        replicas, group = target.replicas * target.instances, target.numerics.norm_group
        if self.one_replica and replicas > 1:
            raise _traced_for("one replica, and reduces nothing over replicas", f"{replicas} replicas")
        if self.norm_groups - {group}:
            before = ", ".join(map(str, sorted(self.norm_groups)))
            what = "batch normalisation over groups of {} replicas"
            raise _traced_for(what.format(before), what.format(group))


def _traced_for(before: str, now: str) -> tf.errors.FailedPreconditionError:
    return tf.errors.FailedPreconditionError(
        None,
        None,
        f"The program was traced for {before}; the device is configured for {now}. Configure the device before the "
        "`tf.function` or the graph is made, or make it again.",
    )
