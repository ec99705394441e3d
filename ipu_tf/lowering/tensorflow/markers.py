"""Markers: device-only ops that TensorFlow lowers to StableHLO custom calls (`ipu.*`).

TensorFlow has no CPU kernel for them, so a program that strays onto the CPU fails there with an error.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf.lowering.stablehlo.module import INFEED, OUTFEED
from ipu_tf.lowering.tensorflow import tf_private
from ipu_tf.lowering.tensorflow.refusal import unknown_shape_refusal

_DONE = tf.TensorSpec([], tf.int32)


def dequeue_marker(queue: str, specs: Sequence[tf.TensorSpec]) -> list[tf.Tensor]:
    """Dequeues the next element of an infeed, a tensor for each spec, whether or not it is used."""
    with _standalone():
        tensors = list(tf_private.custom_call(INFEED, (), specs, json.dumps({"queue": queue}), side_effect=True))
    _used(tensors[0])
    return tensors


def enqueue_marker(queue: str, tensors: Sequence[tf.Tensor]) -> tf.Operation:
    """Enqueues an element to an outfeed, whether or not the operation is used."""
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    with _standalone():
        [done] = tf_private.custom_call(OUTFEED, tensors, [_DONE], json.dumps({"queue": queue}), side_effect=True)
    return _used(done)


def marker(
    target: str, inputs: Sequence[tf.Tensor], specs: Sequence[tf.TensorSpec], **attributes: Any
) -> list[tf.Tensor]:
    """Adds a marker: `stablehlo.custom_call @target`, which a `custom_call_rule` of the importer implements.

    It has no gradient of its own (wrap it in `tf.custom_gradient`), and is dropped where nothing uses its results.

    Args:
        target: e.g. `ipu.all_gather`.
        inputs: tensors it reads.
        specs: static shape and dtype of each result.
        attributes: whatever JSON can hold; the rule reads it with `op.configuration()`.

    Raises:
        ValueError: for a tensor of unknown shape, with the line of the op that made it.
    """
    _check_shapes(target, inputs, specs)
    return list(tf_private.custom_call(target, tuple(inputs), list(specs), json.dumps(attributes), side_effect=False))


def stateful_marker(
    target: str, inputs: Sequence[tf.Tensor], specs: Sequence[tf.TensorSpec], **attributes: Any
) -> list[tf.Tensor]:
    """As `marker`, but with a side effect: it runs even if its results, at least one, are not used.

    Each is on its own, also among others with the same inputs and attributes.
    """
    configuration = json.dumps(attributes)
    _check_shapes(target, inputs, specs)
    with _standalone():
        tensors = list(tf_private.custom_call(target, tuple(inputs), list(specs), configuration, side_effect=True))
    _used(tensors[0])
    return tensors


def _check_shapes(target: str, inputs: Sequence[tf.Tensor], specs: Sequence[tf.TensorSpec]) -> None:
    """Raises an error of ours where TensorFlow would name the marker alone."""
    unknown = [tensor for tensor in inputs if not tensor.shape.is_fully_defined()]
    if unknown and not all(spec.shape.is_fully_defined() for spec in specs):
        raise unknown_shape_refusal(target, unknown[0])


@contextlib.contextmanager
def _standalone() -> Iterator[None]:
    """Context manager: ops wait for a stateful op of their own.

    TensorFlow takes markers for stateless and would make one of two that are alike, also where it inlines two calls of
    one function. They are not alike if they wait for different ops, and stateful ops stay as many as they are.
    """
    with tf.control_dependencies([tf.raw_ops.Assert(condition=True, data=[0])]):
        yield


def _used(result: tf.Tensor) -> tf.Operation:
    """Adds a stateful op that uses a marker's result, so that tf2xla keeps the marker.

    TensorFlow takes the marker itself for stateless and would drop it where nothing uses it. An assertion is stateful,
    and compiles to nothing. It has to use a result: control edges are lost where TensorFlow inlines a function.
    """
    return tf.raw_ops.Assert(condition=True, data=[result])
