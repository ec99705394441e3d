"""Builds a pipeline as one loop over micro-batches with gradient accumulation.

    for each update:
        for each micro-batch:     stage 0 ─► stage 1 ─► ... ─► loss ─► gradients, accumulated
        apply what was accumulated

All micro-batches of an update see the same weights, whatever the schedule: so the order of the loop does not matter.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf import loops
from ipu_tf._pipelining.last_device_mapping import record_mapping
from ipu_tf._pipelining.optimizer_output import OptimizerFunctionOutput
from ipu_tf._pipelining.pipeline_arguments import PipelineArguments
from ipu_tf._pipelining.recomputation_mode import recomputation_of
from ipu_tf._pipelining.stage_boundaries import StageBoundaries
from ipu_tf._pipelining.stage_variables import StageVariables
from ipu_tf._training.accumulation import accumulated, accumulation_scope, on_update
from ipu_tf.eager.backprop import GradientCaptureTape
from ipu_tf.gradient_accumulation import GradientAccumulationReductionMethod as Reduction
from ipu_tf.lowering.tensorflow import tf_graphs, tf_values
from ipu_tf.lowering.tensorflow.host_calls import checked_micro_batch_count
from ipu_tf.ops.op_util import get_accumulator_dtype
from ipu_tf.pipeline.options import ALL_DEVICES
from ipu_tf.sharding import shard_scope


def pipeline_loop(request: PipelineArguments) -> tf.Operation:
    """The operation that runs a pipeline inside of a program."""
    record_mapping(tuple(request.device_mapping))
    if isinstance(request.count, tf.Tensor) and not request.overlapped:
        request = dataclasses.replace(request, count=checked_micro_batch_count(request.count, request.overlap))
    step = _Step(request)
    total = request.micro_batches * request.repeat_count
    with tf.name_scope(request.name):
        return loops.repeat(total, step, [], request.infeed_queue)


class _Step:
    """One micro-batch, as the body of a loop."""

    def __init__(self, request: PipelineArguments) -> None:
        self._request, self._stage_boundaries = request, _stage_boundaries(request)

    def __call__(self, *element: Any, **named: Any) -> list[tf.Operation]:
        request = self._request
        with _check_no_captures([*request.inputs, request.count]), accumulation_scope(request.micro_batches):
            outputs = self._forward(element, named)
            if request.training:
                return self._train(outputs)
            return self._infer(outputs)

    def _forward(self, element: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Returns the outputs of the last stage."""
        request, boundaries, variables = self._request, self._stage_boundaries, StageVariables()
        outputs: Any = [*request.inputs, *element]
        with boundaries.tracing():
            for number, where in enumerate(request.device_mapping):
                with variables.stage(number, where):
                    outputs = _run_stage(request, number, _as_list(outputs), {} if number else named)
                outputs = boundaries.mark_outputs(number, outputs)
        return outputs

    def _infer(self, outputs: Any) -> list[tf.Operation]:
        operations = [output for output in _as_list(outputs) if isinstance(output, tf.Operation)]
        if not isinstance(outputs, (dict, tf.Tensor)):
            outputs = [output for output in _as_list(outputs) if not isinstance(output, tf.Operation)]
        if isinstance(outputs, (dict, tf.Tensor)) or outputs:
            self._check_outfeed(outputs)
            operations += self._enqueue(outputs)
        return operations

    def _train(self, outputs: Any) -> list[tf.Operation]:
        request = self._request
        tensors = [output for output in _as_list(outputs) if not isinstance(output, tf.Operation)]
        assert request.optimizer_function is not None
        found = request.optimizer_function(*tensors)
        operations = self._enqueue_training(tensors, found.loss)
        pairs = [(g, v) for g, v in map(_with_zeros, _gradients(found)) if g is not None]
        ready = [(self._accumulated(g, v), v) for g, v in pairs]
        captured = self._captured(found)
        tf_values.create_optimizer_variables(found.opt, [variable for _, variable in ready])
        return [*operations, on_update(request.micro_batches, lambda: _apply(found, ready, captured)).op]

    def _accumulated(self, gradient: Any, like: Any) -> tf.Tensor:
        dtype = get_accumulator_dtype(like, self._request.dtype)
        name = str(getattr(like, "name", "")).partition(":")[0]
        return accumulated(gradient, self._request.micro_batches, self._request.reduction, dtype, name)

    def _captured(self, found: OptimizerFunctionOutput) -> dict[str, list[tf.Tensor]]:
        """Returns captured gradients by tag, accumulated if requested."""
        source = found.tape if isinstance(found.tape, GradientCaptureTape) else found.gradient_capture_context
        captured = dict(source.captured_gradients) if source is not None else {}
        if not self._request.accumulate_captured:
            return captured
        return {tag: [self._accumulated(g, g) for g in gradients] for tag, gradients in captured.items()}

    def _enqueue_training(self, tensors: list[tf.Tensor], loss: tf.Tensor) -> list[tf.Operation]:
        request = self._request
        if request.outfeed_loss:
            if request.outfeed_queue is None:
                raise ValueError("An outfeed_queue must be provided when outfeed_loss is True")
            return self._enqueue(loss)
        mask = list(request.outfeed_mask or [False] * len(tensors))
        if len(mask) != len(tensors):
            raise ValueError(
                f"The last computational stage has {len(tensors)} outputs, but the `outfeed_mask` has elements "
                f"{len(mask)} - these need to match in size."
            )
        shown = [tensor for hidden, tensor in zip(mask, tensors, strict=True) if not hidden]
        if not shown:
            return []
        self._check_outfeed(shown)
        return self._enqueue(shown)

    def _check_outfeed(self, tensors: Any) -> None:
        if self._request.outfeed_queue is None:
            listed = ", ".join(str(tensor) for tensor in tf.nest.flatten(tensors))
            raise ValueError(
                f"The last computational stage has tensor outputs: {listed}, but no outfeed_queue has been provided."
            )

    def _enqueue(self, tensors: Any) -> list[tf.Operation]:
        """Enqueues tensors to the outfeed: each micro-batch's, or the sum of all once an update."""
        request = self._request
        queue = request.outfeed_queue
        assert queue is not None
        if not request.accumulate_outfeed:
            return [queue.enqueue(tensors)]

        def summed(tensor: tf.Tensor) -> tf.Tensor:
            dtype = get_accumulator_dtype(tensor, request.accumulate_outfeed_dtype)
            return accumulated(tensor, request.micro_batches, Reduction.SUM, dtype)

        sums = [tf.nest.map_structure(summed, tensor) for tensor in _as_list(tensors)]
        element = sums[0] if request.outfeed_loss else sums
        return [on_update(request.micro_batches, lambda: queue.enqueue(element)).op]


def _stage_boundaries(request: PipelineArguments) -> StageBoundaries:
    mapping = tuple(tuple(where) if isinstance(where, (list, tuple)) else where for where in request.device_mapping)
    count = 0 if isinstance(request.count, tf.Tensor) else request.micro_batches
    recomputation = recomputation_of(request.recomputation, int(request.schedule), request.training)
    return StageBoundaries(len(request.stages), mapping, int(request.schedule), request.training, count, recomputation)


def _run_stage(request: PipelineArguments, number: int, args: list[Any], named: dict[str, Any]) -> Any:
    stage, where = request.stages[number], request.device_mapping[number]
    name = f"{request.name}_stage_{number}"
    if not isinstance(stage, (list, tuple)):
        return _on_device(name, where, stage, args, named)
    outputs: list[Any] = []
    for index, (function, device) in enumerate(zip(stage, where, strict=True)):
        outputs += _as_list(_on_device(f"{name}{index}", device, function, args, named))
    return outputs


def _on_device(name: str, device: int, function: Any, args: list[Any], named: dict[str, Any]) -> Any:
    scope = contextlib.nullcontext() if device == ALL_DEVICES else shard_scope([int(device)])
    with scope:
        with tf.name_scope(name):
            tf.no_op("begin")  # a stage without ops of its own has its IPU all the same
        # Outside of the name scope: variables of Keras layers bear its name, and training and evaluation share them.
        return function(*args, **named)


def _gradients(found: OptimizerFunctionOutput) -> list[tuple[Any, Any]]:
    if isinstance(found.opt, tf.compat.v1.train.Optimizer):
        args, named = found.compute_gradients_args, found.compute_gradients_kwargs
        return list(found.opt.compute_gradients(found.loss, *args, **named))
    variables = list(found.tape.watched_variables()) if found.tape is not None else list(found.variables)
    if not variables:
        raise RuntimeError(
            "No variables to optimize. When using OptimzerV2, OptimizerFunctionOutput must contain a list of variables "
            "or a GradientTape."
        )
    tensors = [
        v if isinstance(v, (tf.Variable, tf.Tensor)) else v.value for v in variables
    ]  # Keras's own, or TensorFlow's
    tf_values.create_optimizer_variables(found.opt, variables)  # the scale of the loss may be one of them
    return list(zip(_gradients_to_apply(found.opt, found.loss, tensors), variables, strict=True))


def _gradients_to_apply(opt: Any, loss: tf.Tensor, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor | None]:
    """Returns gradients as `apply_gradients` of a Keras optimizer takes them.

    That of Keras 3 divides by the scale of the loss, so the gradients are those of the scaled loss; that of Keras 2
    takes gradients that are divided already.
    """
    if hasattr(opt, "scale_loss"):
        return list(tf.gradients(opt.scale_loss(loss), tensors))
    if hasattr(opt, "get_scaled_loss"):
        return list(opt.get_unscaled_gradients(tf.gradients(opt.get_scaled_loss(loss), tensors)))
    return list(tf.gradients(loss, tensors))


def _with_zeros(pair: tuple[Any, Any]) -> tuple[Any, Any]:
    """Replaces a None gradient by zeros: of a variable that a stage uses and the loss does not depend on.

    On an IPU a stage is one op, which has a gradient for everything that it uses.
    """
    gradient, variable = pair
    resource = variable if isinstance(variable, tf.Variable) else getattr(variable, "value", variable)
    used = {id(tensor) for tensor in tf_graphs.captured_tensors(tf.compat.v1.get_default_graph())}
    if gradient is None and id(getattr(resource, "handle", None)) in used:
        gradient = tf.zeros(resource.shape, resource.dtype)
    return gradient, variable


def _apply(found: OptimizerFunctionOutput, pairs: list[tuple[Any, Any]], captured: dict[str, Any]) -> list[Any]:
    named = dict(found.apply_gradients_kwargs)
    if captured and _accepts_captured_grads(found.opt):
        named["captured_grads"] = captured
    results = [found.opt.apply_gradients(pairs, *found.apply_gradients_args, **named)]
    if captured and found.captured_gradient_outfeed is not None:
        results.append(found.captured_gradient_outfeed.enqueue(captured))
    return results


def _accepts_captured_grads(opt: Any) -> bool:
    named = inspect.getfullargspec(type(opt).apply_gradients)
    return "captured_grads" in (*named.args, *named.kwonlyargs) or bool(getattr(opt, "supports_captured_grads", False))


@contextlib.contextmanager
def _check_no_captures(given: Sequence[Any]) -> Iterator[None]:
    """Refuses tensors of outer graphs: a stage's data comes from the stage before, the infeed, or `inputs`."""
    graph = tf.compat.v1.get_default_graph()
    before = tf_graphs.captured_tensors(graph)
    yield
    known = {id(tensor) for tensor in (*before, *given)}
    for tensor in tf_graphs.captured_tensors(graph):
        constant = isinstance(tensor, tf_graphs.EagerTensor) or tensor.op.type == "Const"
        if id(tensor) not in known and tensor.dtype != tf.resource and not constant:
            raise ValueError(
                f"Trying to capture the tensor {tensor} which is not a resource. This tensor needs to be passed as "
                "either part of the `input` or `infeed_queue` of the pipeline."
            )


def _as_list(outputs: Any) -> list[Any]:
    if outputs is None:
        return []
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
