"""Embeds a device program as an op in a TensorFlow graph, for TF1 sessions and inside a `tf.function`.

    graph:   inputs, values of the variables ──► host op ──► outputs, new values ──► assignments
                                                   │
                                             runs on the device

The variables are the session's: they are read before and written after each run, in the graph.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf.device.errors import DeviceError
from ipu_tf.device.program.parameter_notes import ParameterNotes
from ipu_tf.device.run.executable import Executable
from ipu_tf.device.run.recompilation import Signature, array_text, settings_of, what_changed
from ipu_tf.lowering.programs.build import build_program
from ipu_tf.lowering.programs.capture_notes import graph_notes
from ipu_tf.lowering.programs.program_target import Target
from ipu_tf.lowering.programs.replica_variables import ReplicaVariables
from ipu_tf.lowering.programs.tensorflow_errors import to_tensorflow_error
from ipu_tf.lowering.programs.trace_settings import TraceSettings
from ipu_tf.lowering.tensorflow import tf_graphs, tf_private, tf_session_patches, tf_values
from ipu_tf.lowering.tensorflow.graph_pruning import pruned
from ipu_tf.lowering.tensorflow.host_op import host_op, without_gradients
from ipu_tf.lowering.tensorflow.refusal import check_variables
from ipu_tf.lowering.tensorflow.shards import shard_count_of
from ipu_tf.lowering.tensorflow.trace import Lowered, lower


@dataclasses.dataclass(frozen=True)
class EmbeddedProgram:
    """Graph op and outputs of an embedded program.

    Attributes:
        outputs: the computation's tensors.
        operation: runs the program and writes its variables.
    """

    outputs: list[tf.Tensor]
    operation: tf.Operation


def embed(
    computation: Callable[..., Sequence[tf.Tensor]],
    inputs: Sequence[tf.Tensor],
    name: str,
    before: Callable[[int], Target],
) -> EmbeddedProgram:
    """Traces a computation and adds it to the current graph as a program on the device.

    Args:
        computation: takes one tensor an input and gives tensors. What it captures of the graph becomes input too.
        inputs: tensors of the current graph.
        name: for the op.
        before: called when the program runs, before anything else, with the number of shards it uses: checks that it
            may run, and says where.
    """
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs]
    graph = tf_private.trace_in_graph(name, computation, specs)
    tf_values.order_first_reads(graph)
    captured = list(zip(graph.external_captures, graph.internal_captures, strict=True))
    handles = [pair for pair in captured if pair[0].dtype == tf.resource]
    values = [pair for pair in captured if pair[0].dtype != tf.resource]
    check_variables(name, handles)
    notes = graph_notes([*inputs, *(outer for outer, _ in (*values, *handles))])
    program = GraphProgram(graph, [inner for _, inner in values], [inner for _, inner in handles], before, notes)
    with tf.device("/device:CPU:0"):
        states = [tf_values.read_handle(outer, tf_values.handle_spec(inner)) for outer, inner in handles]
        op = host_op(program.run, [*inputs, *(outer for outer, _ in values), *states], program.outputs, name)
        count = len(op.results) - len(program.written)
        updates = [
            tf_values.assign_handle(handles[index][0], value)
            for index, value in zip(program.written, op.results[count:], strict=True)
        ]
        sources = [*inputs, *(outer for outer, _ in values), *states]
        results = without_gradients(op.results[:count], sources, name)
        with tf.control_dependencies([op.operation, *updates]):
            outputs = [tf.identity(result) for result in results]
            return EmbeddedProgram(outputs, tf.no_op(name=f"{name}_run"))


class GraphProgram:
    """Program that one host op runs; lowered at first use for each set of input shapes."""

    def __init__(
        self,
        graph: Any,
        values: Sequence[tf.Tensor],
        handles: Sequence[tf.Tensor],
        before: Callable[[int], Target],
        notes: ParameterNotes = ParameterNotes(),  # noqa: B008
    ) -> None:
        self._notes = notes
        self._inputs = [tensor for tensor in graph.inputs if tensor.dtype != tf.resource]
        self._handles = list(handles)
        self._graph = graph  # with it, TensorFlow would forget the functions that it calls
        self._before = before
        self._lock = threading.Lock()
        self._ready: dict[Any, _CompiledProgram] = {}
        self._signatures: list[Signature] = []
        self.written = [index for index, handle in enumerate(self._handles) if _written(handle)]
        self._names = [tensor.name for tensor in graph.outputs]
        targets = {tensor.op.name for tensor in graph.outputs} | {op.name for op in graph.control_outputs}
        given = {tensor.op.name for tensor in [*self._inputs, *self._handles]}
        only_used = tf_private.prunes_unused(graph)
        graph_def = graph.as_graph_def()
        tf_graphs.forget_custom_gradients(graph, graph_def)
        self._traced_with = TraceSettings.of(graph_def)
        self._graph_def = pruned(graph_def, targets, given, only_used)
        tf_private.define_functions(self, self._graph_def.library.function)
        self.outputs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in graph.outputs]
        self._shards = shard_count_of(graph)
        self._outputs = len(self.outputs)
        self.outputs += [tf_values.handle_spec(self._handles[index]) for index in self.written]

    def target(self) -> Target:
        """Returns the device and replicas of the program; raises if it cannot run there."""
        found = self._before(self._shards)
        self._traced_with.check(found)
        return found

    def run(self, *values: np.ndarray) -> list[np.ndarray]:
        """Runs the program on the values of its inputs, captured tensors and variables."""
        target = self.target()
        inputs, states = values[: len(self._inputs)], values[len(self._inputs) :]
        key = (target, *((value.shape, value.dtype) for value in values))
        with self._lock:
            if key not in self._ready:
                try:
                    compiled = self._compile(inputs, states, target)
                except DeviceError as error:
                    raise to_tensorflow_error(error) from error.__cause__
                now = self._signature(values, target)
                compiled.executable.record.because = what_changed(now, self._signatures)
                self._signatures.append(now)
                self._ready[key] = compiled
        session = tf_session_patches.running_session(self._graph)
        return self._ready[key].run(inputs, states, self._outputs, self.written, session)

    def _signature(self, values: Sequence[np.ndarray], target: Target) -> Signature:
        names = (tensor.name.partition(":")[0] for tensor in (*self._inputs, *self._handles))
        arrays = {name: array_text(value.shape, value.dtype) for name, value in zip(names, values, strict=True)}
        return arrays | settings_of(target)

    def _compile(self, inputs: Sequence[np.ndarray], states: Sequence[np.ndarray], target: Target) -> _CompiledProgram:
        lowered, order = self.lowered(inputs, states)
        program = build_program(lowered.module, target.replicas, target.numerics)
        notes = self._notes.of((*range(len(inputs)), *(len(inputs) + index for index in order)))
        program = dataclasses.replace(program, parameter_notes=notes)
        return _CompiledProgram(lowered, Executable(program, target.ordinal), order, ReplicaVariables())

    def lowered(self, inputs: Sequence[np.ndarray], states: Sequence[np.ndarray]) -> tuple[Lowered, list[int]]:
        """Lowers the program for such inputs and states; returns it with the index of each capture's state."""
        with tf_values.eager_mode():
            variables = [tf.Variable(value, dtype=value.dtype) for value in states]
            specs = [tf.TensorSpec(value.shape, value.dtype) for value in inputs]
            function = tf.function(lambda *tensors: self._rebuilt(tensors, variables), autograph=False)
            lowered = lower(tf_private.concrete_function(function, *specs), variables)
        order = [next(i for i, v in enumerate(variables) if v is capture) for capture in lowered.captures]
        return lowered, order

    def _rebuilt(self, tensors: Sequence[tf.Tensor], variables: Sequence[tf.Variable]) -> list[tf.Tensor]:
        """Copies the traced computation into the current graph, with placeholders for its variables."""
        fed = dict(zip((t.name for t in self._inputs), tensors, strict=True))
        fed.update(zip((t.name for t in self._handles), (v.handle for v in variables), strict=True))
        used = {text for node in self._graph_def.node for text in node.input}
        fed = {name: tensor for name, tensor in fed.items() if name.removesuffix(":0") in used}
        return tf_private.import_graph(self._graph_def, fed, self._names, self._graph)


@dataclasses.dataclass(frozen=True)
class _CompiledProgram:
    """Lowered program with its executable.

    Attributes:
        order: for each capture of the lowered function, which state it is.
        replica_states: what each replica had of the states after the last run.
    """

    lowered: Lowered
    executable: Executable
    order: list[int]
    replica_states: ReplicaVariables

    def run(
        self,
        inputs: Sequence[np.ndarray],
        states: Sequence[np.ndarray],
        outputs: int,
        written: Sequence[int],
        session: int = 0,
    ) -> list[np.ndarray]:
        """Runs the program for a session; returns the outputs, then the new values of the `written` states."""
        try:
            own = self.replica_states.of_session(session)
            outcome = self.executable.run([*inputs, *(own.resumed(index, states[index]) for index in self.order)])
        except DeviceError as error:
            raise to_tensorflow_error(error) from error.__cause__
        if outcome.error is not None:
            raise to_tensorflow_error(outcome.error)
        after = dict(enumerate(states))
        for result, parameter in self.lowered.module.aliases.items():
            index = self.order[parameter - len(inputs)]
            after[index] = own.kept(index, outcome.results[result], self.executable.replicas)
        return [np.array(array) for array in outcome.results[:outputs]] + [after[index] for index in written]


def _written(handle: tf.Tensor) -> bool:
    """Returns whether a program may change a variable; what it only reads is not written back to the session's."""
    return any(tf_private.may_write(consumer, handle) for consumer in handle.consumers())
