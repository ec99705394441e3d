"""Finds which stages use each variable; stages that share one must be on the same IPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from ipu_tf.device.schedule.pipeline_shape import ALL_DEVICES


class StageVariables:
    """Records which variables the stages of a pipeline use while they are traced."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[int, int]] = {}

    @contextlib.contextmanager
    def stage(self, number: int, device: Any) -> Iterator[None]:
        """Scope in which a stage is traced.

        Args:
            number: the stage's.
            device: the IPU it is on; a stage on several or all of them may use any variable.

        Raises:
            tf.errors.InvalidArgumentError: if it uses a variable that a stage on another IPU uses too.
        """
        graph = tf.compat.v1.get_default_graph()
        before = len(graph.get_operations())
        yield
        if not isinstance(device, int) or device == ALL_DEVICES:
            return
        for op in graph.get_operations()[before:]:
            for tensor in op.inputs:
                if tensor.dtype == tf.resource:
                    self._uses(tensor, number, device)

    def _uses(self, handle: tf.Tensor, number: int, device: int) -> None:
        first, where = self._first.setdefault(id(handle), (number, device))
        if where != device:
            raise tf.errors.InvalidArgumentError(
                None,
                None,
                f"The variable '{_name(handle)}' is used by stage {first} on IPU {where} and by stage {number} on IPU "
                f"{device} of a pipeline. A variable belongs to one IPU: put both stages on it with `device_mapping`, "
                "or hand the value from stage to stage.",
            )


def _name(handle: tf.Tensor) -> str:
    """The name of the variable that a captured handle is of."""
    while (captures := getattr(handle.graph, "captures", None)) is not None:
        outside = {id(inner): outer for outer, inner in captures}
        outer = outside.get(id(handle))
        names = {id(variable.handle): str(variable.name) for variable in getattr(handle.graph, "variables", ())}
        if id(outer) in names:
            return names[id(outer)]
        if outer is None or not hasattr(outer, "graph"):
            break
        handle = outer
    return str(handle.op.name)
