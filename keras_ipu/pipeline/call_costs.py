"""Estimates FLOPs, parameters and activation bytes of each layer call."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_ipu.pipeline.graph import graph_of
from keras_ipu.pipeline.op_flops import LOOPS, elements, op_flops
from keras_ipu.pipeline.stage_plan import LayerCall, StagePlan, run_call
from keras_ipu.stock import graphs as keras_graphs

_UNKNOWN_SIZES = (128, 64, 32, 16, 8, 4, 2, 1)
"""Sizes that stand for those a model leaves open, other than the batch's, such as the length of a sequence.

The first that the model takes is used: one with learnt positions takes no more than it has.
"""


@dataclasses.dataclass(frozen=True)
class CallCost:
    """Cost of one layer call for one micro-batch.

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
    """Returns the costs of a model's layer calls.

    The model is traced once on the host; nothing is run.

    Args:
        plan: the model, taken apart.
        micro_batch_size: samples in a micro-batch. Other sizes that the model leaves open count as 128, or as the
            largest power of two below it that the model takes.

    Returns:
        The cost of each call of the plan, and the bytes of each value by its number.

    Raises:
        Exception: the model's own, if it takes none of these sizes.
    """
    values, flops = _counted(plan, micro_batch_size)
    seen: set[int] = set()
    costs = [_cost(call, flops[place], values, seen) for place, call in enumerate(plan.calls)]
    return costs, {number: _bytes(value) for number, value in values.items()}


Counted = tuple[dict[int, Any], list[float]]
"""The values of a model by their numbers, as they are while it is traced, and the operations of each of its calls."""


def _counted(plan: StagePlan, micro_batch_size: int) -> Counted:
    counted = _counted_by_tensorflow if keras.backend.backend() == "tensorflow" else _counted_by_jax
    tried = dict.fromkeys(tuple(_specs(plan.model, micro_batch_size, size)) for size in _UNKNOWN_SIZES)
    failures: list[Exception] = []
    for specs in tried:
        try:
            return counted(plan, specs)
        except Exception as error:  # noqa: BLE001 - any layer's own, of a size or not: the next size tells
            failures.append(error)
    raise failures[0]


def _counted_by_tensorflow(plan: StagePlan, specs: Sequence[tf.TensorSpec]) -> Counted:
    known: dict[int, Any] = {}
    flops: list[float] = []

    def trace(*tensors: tf.Tensor) -> None:
        known.update(zip(plan.carried[0], tensors, strict=True))
        graph = tf.compat.v1.get_default_graph()
        with keras_graphs.model_call(plan.model, training=False, first=True):
            for call in plan.calls:
                before = len(graph.get_operations())
                outputs = run_call(call, known, False)
                known.update(zip(call.outputs, outputs, strict=True))
                flops.append(_of_ops(call, known, graph.get_operations()[before:], outputs))

    tf.function(trace, autograph=False).get_concrete_function(*specs)
    return known, flops


def _counted_by_jax(plan: StagePlan, specs: Sequence[tf.TensorSpec]) -> Counted:
    import jax

    from ipu_tf.reports.flops import flops_of

    known: dict[int, Any] = {}
    flops: list[float] = []

    def trace(*arrays: Any) -> None:
        known.update(zip(plan.carried[0], arrays, strict=True))
        with keras.StatelessScope(), keras_graphs.model_call(plan.model, training=False, first=True):
            for call in plan.calls:
                taken = sorted(set(call.inputs.values()))
                given = [known[number] for number in taken]
                flops.append(flops_of(functools.partial(_called, call, taken), *given))
                known.update(zip(call.outputs, run_call(call, known, False), strict=True))

    jax.eval_shape(trace, *(jax.ShapeDtypeStruct(tuple(spec.shape), spec.dtype.as_numpy_dtype) for spec in specs))
    return known, flops


def _called(call: LayerCall, taken: Sequence[int], *values: Any) -> list[Any]:
    return run_call(call, dict(zip(taken, values, strict=True)), False)


def _specs(model: Any, micro_batch_size: int, unknown_size: int) -> list[tf.TensorSpec]:
    symbolic, _ = keras_graphs.graph_structures(graph_of(model))
    specs = []
    for tensor in keras.tree.flatten(symbolic):
        first, *rest = tensor.shape
        shape = [micro_batch_size if first is None else first, *(unknown_size if s is None else s for s in rest)]
        specs.append(tf.TensorSpec(shape, tensor.dtype))
    return specs


def _cost(call: LayerCall, flops: float, values: dict[int, Any], seen: set[int]) -> CallCost:
    weights = [w for w in getattr(call.layer, "weights", ()) if id(w) not in seen]
    seen.update(map(id, weights))
    trained = [w for w in weights if w.trainable]
    return CallCost(
        call=call,
        flops=flops,
        parameters=sum(elements(w.shape) for w in trained),
        parameter_bytes=sum(map(_bytes, weights)),
        training_bytes=sum(map(_bytes, trained)),
        output_bytes=sum(_bytes(values[number]) for number in call.outputs),
    )


def _of_ops(call: LayerCall, known: dict[int, Any], ops: Sequence[Any], outputs: Sequence[Any]) -> float:
    counted = [op_flops(op) for op in ops]
    flops = sum(number for number in counted if number is not None)
    if None in counted:
        loops = any(op.type in LOOPS for op in ops)
        flops += _by_weights(call.layer, known[next(iter(call.inputs.values()))] if loops else outputs[0])
    return flops


def _by_weights(layer: Any, tensor: Any) -> float:
    """Estimates FLOPs of a layer whose ops are in a loop or a call: each kernel once for every position.

    That is its input if it loops over it, as a recurrent layer does, else its output.
    """
    kernels = sum(elements(w.shape) for w in getattr(layer, "weights", ()) if len(w.shape) > 1)
    return 2.0 * kernels * elements(tensor.shape[:-1])


def _bytes(value: Any) -> int:
    return elements(value.shape) * tf.as_dtype(value.dtype).size
