"""What each call of a layer of a model costs: operations, parameters, and bytes it leaves for its backward pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_ipu import keras_graphs
from keras_ipu.graph import graph_of
from keras_ipu.op_flops import LOOPS, elements, op_flops
from keras_ipu.stage_plan import LayerCall, StagePlan, run_call

_UNKNOWN_SIZE = 128
"""What sizes other than the batch's count as that a model leaves open, such as the length of a sequence."""


@dataclasses.dataclass(frozen=True)
class CallCost:
    """What one call of a layer costs for one micro-batch.

    Attributes:
        call: the call.
        flops: floating-point operations of its forward pass, estimated from the ops it traces to.
        parameters: how many numbers its trained variables have; those of a layer count at its first call.
        parameter_bytes: bytes of its variables, likewise.
        training_bytes: bytes of the accumulators of their gradients.
        output_bytes: bytes of what it gives.
    """

    call: LayerCall
    flops: float
    parameters: int
    parameter_bytes: int
    training_bytes: int
    output_bytes: int


def call_costs(plan: StagePlan, micro_batch_size: int) -> tuple[list[CallCost], dict[int, int]]:
    """What the calls of a model's layers cost.

    The model is traced once on the host; nothing is run.

    Args:
        plan: the model, taken apart.
        micro_batch_size: samples in a micro-batch. Other sizes that the model leaves open count as 128.

    Returns:
        The cost of each call of the plan, and the bytes of each value by its number.
    """
    costs: list[CallCost] = []
    sizes: dict[int, int] = {}
    seen: set[int] = set()

    def trace(*tensors: tf.Tensor) -> None:
        known: dict[int, Any] = dict(zip(plan.carried[0], tensors, strict=True))
        graph = tf.compat.v1.get_default_graph()
        with keras_graphs.model_call(plan.model, training=False, first=True):
            for call in plan.calls:
                before = len(graph.get_operations())
                outputs = run_call(call, known, False)
                known.update(zip(call.outputs, outputs, strict=True))
                costs.append(_cost(call, known, graph.get_operations()[before:], outputs, seen))
        sizes.update({number: _bytes(value) for number, value in known.items()})

    tf.function(trace, autograph=False).get_concrete_function(*_specs(plan.model, micro_batch_size))
    return costs, sizes


def _specs(model: Any, micro_batch_size: int) -> list[tf.TensorSpec]:
    symbolic, _ = keras_graphs.graph_structures(graph_of(model))
    specs = []
    for tensor in keras.tree.flatten(symbolic):
        first, *rest = tensor.shape
        shape = [micro_batch_size if first is None else first, *(s or _UNKNOWN_SIZE for s in rest)]
        specs.append(tf.TensorSpec(shape, tensor.dtype))
    return specs


def _cost(
    call: LayerCall, known: dict[int, Any], ops: Sequence[Any], outputs: Sequence[Any], seen: set[int]
) -> CallCost:
    weights = [w for w in getattr(call.layer, "weights", ()) if id(w) not in seen]
    seen.update(map(id, weights))
    trained = [w for w in weights if w.trainable]
    counted = [op_flops(op) for op in ops]
    flops = sum(number for number in counted if number is not None)
    if None in counted:
        loops = any(op.type in LOOPS for op in ops)
        flops += _by_weights(call.layer, known[next(iter(call.inputs.values()))] if loops else outputs[0])
    return CallCost(
        call=call,
        flops=flops,
        parameters=sum(elements(w.shape) for w in trained),
        parameter_bytes=sum(map(_bytes, weights)),
        training_bytes=sum(map(_bytes, trained)),
        output_bytes=sum(map(_bytes, outputs)),
    )


def _by_weights(layer: Any, tensor: Any) -> float:
    """The operations of a layer whose ops are in a loop or a call: each kernel once for every position of a tensor.

    That is its input if it loops over it, as a recurrent layer does, else its output.
    """
    kernels = sum(elements(w.shape) for w in getattr(layer, "weights", ()) if len(w.shape) > 1)
    return 2.0 * kernels * elements(tensor.shape[:-1])


def _bytes(value: Any) -> int:
    return elements(value.shape) * tf.as_dtype(value.dtype).size
