"""Ops that tf2xla compiles to nothing, to their input or without the checks of TensorFlow's kernels; against stock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.kernels import get_registered_kernels_for_op

import ipu_tf as ipu
from ipu_tf.lowering.stablehlo.errors import LoweringError, UnsupportedOpsError
from ipu_tf.lowering.tensorflow import tf_graphs
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture
from tests.helpers.some_ipus import ipus

Strategy = ipu.ipu_strategy.IPUStrategyV1
Program = Callable[[tf.Tensor], Any]
RAW = tf.raw_ops
X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def integers(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.int32)


def unknown_shape(x: tf.Tensor) -> tf.Tensor:
    """Its input, whose shape TensorFlow does not know while it traces and tf2xla does."""
    return tf.compat.v1.placeholder_with_default(x, None)


def beside(make: Program) -> Program:
    """A program that makes something of its input, and gives the input."""
    return lambda x: [make(x), x][1]


def after(make: Callable[[], tf.Operation]) -> Program:
    def program(x: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([make()]):
            return x * 2

    return program


def gradient(function: Program) -> Program:
    def program(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.gradient(y, x)

    return program


def on_both(program: Program, strategy: Strategy) -> tuple[Any, Any]:  # noqa: F811
    """Returns the results of a program on stock TensorFlow and on the device."""
    return tf.function(program)(tf.constant(X)), strategy.run(tf.function(program), [tf.constant(X)])


#: Compiled to nothing or to their inputs, which is what they do in TensorFlow as well.
HARMLESS: dict[str, Program] = {
    "NoOp": after(RAW.NoOp),
    "ControlTrigger": after(RAW.ControlTrigger),
    "IdentityN": lambda x: RAW.IdentityN(input=[x, x + 1]),
    "StopGradient": gradient(lambda x: tf.stop_gradient(x) * x),
    "PreventGradient": lambda x: RAW.PreventGradient(input=x, message="no gradient"),
    "Snapshot": lambda x: RAW.Snapshot(input=x) + 1,
    "PlaceholderWithDefault": lambda x: unknown_shape(x) + 1,
    "EnsureShape": lambda x: tf.ensure_shape(unknown_shape(x), [2, None]) * 2,
    "Shape": lambda x: [tf.shape(unknown_shape(x)), tf.rank(unknown_shape(x)), tf.size(unknown_shape(x))],
    "ShapeN": lambda x: RAW.ShapeN(input=[unknown_shape(x), x[0]]),
    "TensorArray of enough size": lambda x: tf.TensorArray(tf.float32, size=2).unstack(x).write(1, x[0]).stack(),
    # No value of them is used: TensorFlow does not run them either.
    "StringFormat, unused": beside(lambda x: tf.strings.format("{}", x)),
    "ScalarSummary, unused": beside(lambda x: RAW.ScalarSummary(tags="a", values=x[0, 0])),
    "Abort, unused": beside(lambda x: RAW.Abort(error_msg="never")),
    "EnsureShape, unused": beside(lambda x: tf.ensure_shape(unknown_shape(x), [3, None])),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_nothing_in_tensorflow_either(strategy: Strategy, name: str) -> None:  # noqa: F811
    stock, mine = on_both(HARMLESS[name], strategy)
    tf.nest.map_structure(np.testing.assert_array_equal, mine, stock)


def test_variables_are_initialized_and_have_their_shape(strategy: Strategy) -> None:  # noqa: F811
    variable = tf.Variable(X)

    def program(x: tf.Tensor) -> list[tf.Tensor]:
        handle = variable.handle
        return [RAW.VarIsInitializedOp(resource=handle), RAW.VariableShape(input=handle), variable.assign_add(x)]

    _, mine = on_both(program, strategy)
    np.testing.assert_array_equal(mine[0], True)
    np.testing.assert_array_equal(mine[1], X.shape)
    np.testing.assert_array_equal(mine[2], X * 3)


#: What fails in TensorFlow, with what is raised there and here, and what both messages say.
FAILS: dict[str, tuple[Program, type[Exception], type[Exception], str]] = {
    "Assert": (
        beside(lambda x: tf.debugging.Assert(x[0, 0] > 1, ["said", x])),
        tf.errors.InvalidArgumentError,
        tf.errors.InvalidArgumentError,
        r"assertion failed: \[said\]",
    ),
    "CheckNumerics, unused": (
        beside(lambda x: tf.debugging.check_numerics(x / 0, "said")),
        tf.errors.InvalidArgumentError,
        tf.errors.InvalidArgumentError,
        "said : Tensor had Inf values",
    ),
    "assert_rank while running": (
        beside(lambda x: tf.debugging.assert_rank(unknown_shape(x), 3, message="said")),
        tf.errors.InvalidArgumentError,
        tf.errors.InvalidArgumentError,
        r"(?s)said.*must have rank\] \[3\] \[Received shape: \] \[2 2\]",
    ),
    "assert_rank while tracing": (
        beside(lambda x: tf.debugging.assert_rank(x, 3, message="said")),
        ValueError,
        ValueError,
        "(?s)said.*must have rank 3",
    ),
    "assert_shapes while tracing": (
        beside(lambda x: tf.debugging.assert_shapes([(x, (3, "n"))], message="said")),
        ValueError,
        ValueError,
        "(?s)said.*must have size 3",
    ),
    "assert_type": (
        beside(lambda x: tf.debugging.assert_type(x, tf.int32, message="said")),
        TypeError,
        TypeError,
        "(?s)said.*must be of type",
    ),
    "ensure_shape": (
        lambda x: tf.ensure_shape(unknown_shape(x), [3, None]),
        tf.errors.InvalidArgumentError,
        LoweringError,
        r"\[2,2\] is not compatible with expected shape \[3,\?\]",
    ),
    "PreventGradient": (
        gradient(lambda x: RAW.PreventGradient(input=x * 2, message="said")),
        Exception,  # AutoGraph's own class
        Exception,
        "LookupError: Gradient explicitly disabled.*said",
    ),
}


@pytest.mark.parametrize("name", FAILS)
def test_what_fails_in_tensorflow_fails(strategy: Strategy, name: str) -> None:  # noqa: F811
    program, stock, mine, said = FAILS[name]
    with pytest.raises(stock, match=said):
        tf.function(program)(tf.constant(X))
    with pytest.raises(mine, match=said):
        strategy.run(tf.function(program), [tf.constant(X)])


def printed_in_a_branch(x: tf.Tensor) -> tf.Tensor:
    if tf.reduce_sum(x) > 0:
        tf.print("here", x)
    return x


def written_summary(x: tf.Tensor) -> tf.Tensor:
    step = tf.constant(1, tf.int64)
    RAW.WriteScalarSummary(writer=RAW.SummaryWriter(), step=step, tag="a", value=x[0, 0])
    return x


#: Which op is refused, by a program that uses it.
REFUSED: dict[str, tuple[str, Program]] = {
    "tf.print": ("PrintV2", beside(lambda x: tf.print("here", x))),
    "tf.print in a branch": ("PrintV2", printed_in_a_branch),
    "tf.compat.v1.Print": ("Print", lambda x: RAW.Print(input=x, data=[x])),
    "StringFormat": ("StringFormat", lambda x: tf.strings.length(tf.strings.format("{}", x))),
    "summary writer": ("WriteScalarSummary", written_summary),
    "summary": ("ScalarSummary", lambda x: RAW.ScalarSummary(tags="a", values=x[0, 0])),
    "Abort": ("Abort", after(lambda: RAW.Abort(error_msg="never"))),
    "Timestamp": ("Timestamp", beside(lambda x: tf.timestamp())),
    "DebugIdentity": ("DebugIdentity", lambda x: RAW.DebugIdentity(input=x)),
    "DebugIdentityV2": ("DebugIdentityV2", lambda x: RAW.DebugIdentityV2(input=x)),
    "DebugGradientIdentity": ("DebugGradientIdentity", lambda x: RAW.DebugGradientIdentity(input=x)),
    "DebugNanCount": ("DebugNanCount", lambda x: RAW.DebugNanCount(input=x)),
    "DebugNumericSummaryV2": ("DebugNumericSummaryV2", lambda x: RAW.DebugNumericSummaryV2(input=x)),
    "assert_shapes while running": (
        "stablehlo.if",
        beside(lambda x: tf.debugging.assert_shapes([(unknown_shape(x), (3, "n"))])),
    ),
}


#: What a refusal advises instead.
ADVICE = {"tf.print": "print_tensor", "summary writer": "run_eagerly=True", "summary": "update a Keras metric"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_an_effect_elsewhere_is_refused_with_its_line(strategy: Strategy, name: str) -> None:  # noqa: F811
    op, program = REFUSED[name]
    with pytest.raises(UnsupportedOpsError) as refusal:
        strategy.run(tf.function(program), [tf.constant(X)])
    assert re.search(rf"^  {re.escape(op)}: ", str(refusal.value), re.MULTILINE)
    assert f'File "{__file__}", line ' in str(refusal.value)
    assert ADVICE.get(name, "") in str(refusal.value)


def used_after_close(x: tf.Tensor) -> tf.Tensor:
    handle, flow = RAW.TensorArrayV3(size=1, dtype=tf.float32)
    flow = RAW.TensorArrayWriteV3(handle=handle, index=0, value=x, flow_in=flow)
    with tf.control_dependencies([RAW.TensorArrayCloseV3(handle=handle)]):
        return RAW.TensorArrayReadV3(handle=handle, index=0, flow_in=flow, dtype=tf.float32)


def popped_after_close(x: tf.Tensor) -> tf.Tensor:
    handle = RAW.StackV2(max_size=1, elem_type=tf.float32)
    with tf.control_dependencies([RAW.StackPushV2(handle=handle, elem=x)]):
        close = RAW.StackCloseV2(handle=handle)
    with tf.control_dependencies([close]):
        return RAW.StackPopV2(handle=handle, elem_type=tf.float32)


def labelled(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(integers(x[:, 0]), x * 0)


#: What only TensorFlow checks, as docs/differences.md says, and what the device gives.
UNCHECKED: dict[str, tuple[Program, Any]] = {
    "gather": (lambda x: tf.gather(x[1], integers(x[1])), [4, 4]),
    "index": (lambda x: x[integers(x)[1, 0]], [3, 4]),
    "slice": (lambda x: tf.slice(x[0], integers(x[0, 1:]), [1]), [2]),
    "scatter": (lambda x: tf.tensor_scatter_nd_update(x, integers(x[:, :1]), x), [[1, 2], [1, 2]]),
    "segment_sum": (lambda x: tf.math.unsorted_segment_sum(x[0], integers(x[:, 0]), 2), [0, 1]),
    "integer division": (lambda x: integers(x) // integers(x * 0), [[-1, -1], [-1, -1]]),
    "integer remainder": (lambda x: integers(x) % integers(x * 0), [[1, 2], [3, 4]]),
    "negative integer power": (lambda x: integers(x) ** integers(-x), [[1, 0], [0, 0]]),
    "inverse": (lambda x: tf.math.reduce_all(tf.math.is_finite(tf.linalg.inv(x * 0))), False),
    "solve": (lambda x: tf.math.reduce_all(tf.math.is_finite(tf.linalg.solve(x * 0, x))), False),
    "eigenvalues of NaN": (lambda x: tf.linalg.eigvalsh(x * np.nan), [np.nan, np.nan]),
    "labels": (labelled, [np.log(np.float32(2)), np.nan]),
    "TensorArray after its close": (used_after_close, X),
    "stack after its close": (popped_after_close, X),
}


@pytest.mark.parametrize("name", UNCHECKED)
def test_what_is_documented_as_not_checked(strategy: Strategy, name: str) -> None:  # noqa: F811
    program, given = UNCHECKED[name]
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(program)(tf.constant(X))
    np.testing.assert_allclose(strategy.run(tf.function(program), [tf.constant(X)]), given, rtol=1e-6)


def test_in_a_compiled_program_of_a_session() -> None:
    """An own default can be fed outside of a program; a gradient that is prevented and printing are refused."""

    def prevented(x: tf.Tensor) -> Any:
        return tf.gradients(RAW.PreventGradient(input=x * 2, message="said"), x)

    with ipus(1), tf.Graph().as_default(), ipu.scopes.ipu_scope("/device:IPU:0"):
        default = tf.compat.v1.placeholder_with_default(X, X.shape)
        doubled = ipu.ipu_compiler.compile(lambda x: unknown_shape(x) * 2, [default])
        with pytest.raises(LookupError, match="Gradient explicitly disabled.*said"):
            ipu.ipu_compiler.compile(prevented, [default])
        with tf.compat.v1.Session() as session:
            np.testing.assert_array_equal(session.run(doubled)[0], X * 2)
            np.testing.assert_array_equal(session.run(doubled, {default: X + 1})[0], (X + 1) * 2)


def ops_without_results() -> Iterator[str]:
    """The ops that tf2xla has a kernel for, with neither results nor a resource to change: only an effect is left."""
    for name in filter(str.isidentifier, dir(RAW)):
        definition = tf_graphs.op_definition(name)
        if definition is None or definition.output_arg:
            continue
        compiled = any(kernel.device_type == "XLA_CPU_JIT" for kernel in get_registered_kernels_for_op(name).kernel)
        if compiled and tf.resource.as_datatype_enum not in (argument.type for argument in definition.input_arg):
            yield name


def test_every_op_without_results_is_in_the_tables(strategy: Strategy) -> None:  # noqa: F811
    strategy.run(tf.function(lambda x: x + 1), [tf.constant(X)])  # has tf2xla register its kernels
    assert set(ops_without_results()) == {"Assert", "ControlTrigger", "NoOp"}
