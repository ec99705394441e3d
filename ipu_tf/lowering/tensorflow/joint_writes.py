"""Writes many small variables at once: as parts of one array, by one call of TensorFlow.

Larger ones, of more bytes than `SMALL`, are copied one by one.

    values ──► one array ──► a traced function: split, reshape, assign ──► variables

Each op that TensorFlow runs eagerly costs some 8 us, and a variable takes two: a tensor is made, and assigned. Batch
callbacks have every variable of a model written after every step.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf.device.memory.residency import SMALL
from ipu_tf.lowering.tensorflow import tf_values

_FEWEST = 4
"""Variables of one dtype that are worth a function."""
_PATIENCE = 16
"""Writes before the function is traced, which takes as long as some of them."""


def write_jointly(variables: Sequence[tf.Variable], values: Sequence[np.ndarray]) -> None:
    """Assigns copies of values to eager variables, in any thread, mode and device scope.

    Args:
        variables: on the host.
        values: of each, of its shape and dtype.
    """
    groups: dict[np.dtype[Any], list[int]] = defaultdict(list)
    for place, value in enumerate(values):
        groups[value.dtype if value.nbytes <= SMALL else np.dtype(object)].append(place)
    singly = groups.pop(np.dtype(object), [])
    for places in groups.values():
        small = [values[place] for place in places]
        written = len(places) >= _FEWEST and _writer(small[0].dtype, tuple(each.shape for each in small)).write(
            [variables[place] for place in places], small
        )
        singly += [] if written else places
    tf_values.write_variables([variables[place] for place in singly], [values[place] for place in singly])


class _JointWriter:
    """Writes variables of some shapes and one dtype; what it traces holds no variable.

    Args:
        dtype: of all.
        shapes: of each.
    """

    def __init__(self, dtype: np.dtype[Any], shapes: tuple[tuple[int, ...], ...]) -> None:
        self._dtype, self._shapes = dtype, shapes
        self._writes = itertools.count()

    def write(self, variables: Sequence[tf.Variable], values: Sequence[np.ndarray]) -> bool:
        """Assigns values, and returns whether it did: the first few times it does not."""
        if next(self._writes) < _PATIENCE:
            return False
        joined = tf_values.host_tensor(np.concatenate([value.reshape(-1) for value in values]))
        tf_values.call_without_results(self._function, [joined, *(variable.handle for variable in variables)])
        return True

    @functools.cached_property
    def _function(self) -> Any:
        sizes = [int(np.prod(shape, dtype=np.int64)) for shape in self._shapes]

        def assign(joined: tf.Tensor, *handles: tf.Tensor) -> None:
            for handle, part, shape in zip(handles, tf.split(joined, sizes), self._shapes, strict=True):
                tf.raw_ops.AssignVariableOp(resource=handle, value=tf.reshape(part, shape))

        specs = [tf.TensorSpec([sum(sizes)], self._dtype), *[tf.TensorSpec([], tf.resource)] * len(sizes)]
        with tf_values.eager_mode():
            return tf.function(assign, autograph=False).get_concrete_function(*specs)


@functools.lru_cache(maxsize=32)
def _writer(dtype: np.dtype[Any], shapes: tuple[tuple[int, ...], ...]) -> _JointWriter:
    return _JointWriter(dtype, shapes)
