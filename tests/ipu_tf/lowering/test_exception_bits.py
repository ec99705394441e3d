"""Exception bits of `floating_point_behaviour`: they stop a program, and nothing is written by it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._loops.step_loop import StepLoop
from ipu_tf._loops.tensor_feed import TensorFeed
from ipu_tf._loops.tensorflow_step import TensorFlowStep, flush_variables
from ipu_tf.device.numerics import exceptions
from ipu_tf.device.numerics.exceptions import EXCEPTIONS, FloatingPointExceptionError
from ipu_tf.lowering.importer.numerics import Numerics
from ipu_tf.lowering.programs.build import build_program
from ipu_tf.ops.replication_ops import replication_index
from tests.helpers.lowering_parity import lowered
from tests.ipu_tf.lowering.test_half_precision import configured, on_device

KINDS = ("inv", "div0", "oflo")
WORDS = {"inv": "an invalid operation", "div0": "a division by zero", "oflo": "an overflow"}
HALF, SINGLE = np.float16, np.float32

#: What raises: a function, its argument, the kind and the name of the op.
RAISES: dict[str, tuple[Callable[[Any], Any], Any, str, str]] = {
    "half overflow": (lambda x: x * x, HALF(1e4), "oflo", "mul"),
    "half sum": (lambda x: x + x, HALF(-4e4), "oflo", "add"),
    "half conversion": (lambda x: tf.cast(x, tf.float16), SINGLE(7e4), "oflo", "Cast"),
    "half conversion of an integer": (lambda x: tf.cast(x, tf.float16), np.int32(70000), "oflo", "Cast"),
    "half product": (lambda x: tf.matmul(x, x), np.full((8, 8), 200, HALF), "oflo", "MatMul"),
    "half exponential": (tf.exp, HALF(12), "oflo", "Exp"),
    "half division": (lambda x: x / 0, HALF(1e4), "div0", "truediv"),
    "half quotient of zeros": (lambda x: x / x, HALF(0), "inv", "truediv"),
    "half to integer": (lambda x: tf.cast(x, tf.int32), HALF(np.nan), "inv", "Cast"),
    "overflow": (lambda x: x * x, SINGLE(1e30), "oflo", "mul"),
    "sum": (tf.reduce_sum, np.full(4, 3e38, SINGLE), "oflo", "Sum"),
    "exponential": (tf.exp, SINGLE(100), "oflo", "Exp"),
    "division": (lambda x: 1 / x, SINGLE(0), "div0", "truediv"),
    "logarithm of zero": (tf.math.log, SINGLE(0), "div0", "Log"),
    "power of zero": (lambda x: x**-1.5, SINGLE(0), "div0", "pow"),
    "reciprocal root": (tf.math.rsqrt, SINGLE(0), "div0", "Rsqrt"),
    "inverse hyperbolic tangent": (tf.atanh, SINGLE(1), "div0", "Atanh"),
    "logarithm": (tf.math.log, SINGLE(-1), "inv", "Log"),
    "square root": (tf.sqrt, SINGLE(-1), "inv", "Sqrt"),
    "factorization": (tf.linalg.cholesky, np.array([[1, 2], [2, 1]], SINGLE), "inv", "Cholesky"),
    "singular system": (
        lambda x: tf.linalg.triangular_solve(x, tf.ones([2, 1])),
        np.array([[1, 0], [2, 0]], SINGLE),
        "div0",
        "MatrixTriangularSolve",
    ),
    "half solution": (
        lambda x: tf.linalg.triangular_solve(x, tf.ones([2, 1], tf.float16)),
        np.array([[1e-5, 0], [0, 1]], HALF),
        "oflo",
        "MatrixTriangularSolve",
    ),
    "difference of infinities": (lambda x: x - x, SINGLE(np.inf), "inv", "sub"),
    "too large for an integer": (lambda x: tf.cast(x, tf.int32), SINGLE(3e9), "inv", "Cast"),
    "order of NaN": (lambda x: x < 1, SINGLE(np.nan), "inv", "Less"),
    "in a loop": (
        lambda x: tf.while_loop(lambda i, y: i < 9, lambda i, y: (i + 1, y * y), [tf.constant(0), x])[1],
        SINGLE(1e10),
        "oflo",
        "while/mul",
    ),
    "in a branch": (lambda x: tf.cond(x > 0, lambda: x * x, lambda: x), SINGLE(1e30), "oflo", "cond/mul"),
}
#: What raises nothing, whatever is asked for.
PASSES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "NaN goes through": (lambda x: (x + 1) * 2 / 3 - tf.sqrt(x), SINGLE(np.nan)),
    "infinities go through": (lambda x: x * 2 + 1, np.array([np.inf, -np.inf], SINGLE)),
    "masks": (lambda x: tf.nn.softmax(x), np.array([1, -np.inf, 2], SINGLE)),
    "reductions": (lambda x: (tf.reduce_max(x), tf.argmax(x), tf.sort(x), tf.reduce_min(x)), np.ones(5, SINGLE)),
    "the largest half": (lambda x: tf.cast(x, tf.float16), SINGLE(65504)),
    "underflow": (lambda x: x * x, SINGLE(1e-30)),
    "equality with NaN": (lambda x: tf.math.is_nan(x), SINGLE(np.nan)),
    "the least int32": (lambda x: tf.cast(x, tf.int32), SINGLE(-(2.0**31))),
    "integers": (lambda x: x * x, np.int32(1 << 20)),
    "linear algebra": (
        lambda x: (tf.linalg.cholesky(x), tf.linalg.qr(x), tf.linalg.eigh(x), tf.linalg.inv(x)),
        np.array([[4, 1], [1, 3]], SINGLE),
    ),
    "pooling": (lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME"), np.ones((1, 5, 5, 1), SINGLE)),
}


@pytest.mark.parametrize("name", RAISES)
def test_each_exception_stops_the_programs_that_ask_for_it(name: str) -> None:
    function, argument, kind, op = RAISES[name]
    with pytest.raises(tf.errors.InternalError) as caught:
        on_device(function, argument, **{kind: True})
    message = str(caught.value.message)
    assert message.startswith(f"Tiles in excepted state: {WORDS[kind]} in `")
    assert f"{op}`, the first of this run." in message
    assert message.endswith(f"The configuration asks to stop for this: floating_point_behaviour.{kind}.")
    on_device(function, argument, **{other: True for other in KINDS if other != kind})
    on_device(function, argument)


@pytest.mark.parametrize("name", PASSES)
def test_what_is_no_exception(name: str) -> None:
    function, argument = PASSES[name]
    on_device(function, argument, set_all=True)


def test_results_are_the_same_where_nothing_happens() -> None:
    x = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)

    def program(x: tf.Tensor) -> list[tf.Tensor]:
        return [tf.matmul(x, x), tf.nn.softmax(x), tf.reduce_mean(x), tf.cast(x, tf.float16) * 3]

    checked, plain = (on_device(program, x, inv=asked, div0=asked, oflo=asked) for asked in (True, False))
    for one, other in zip(checked, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)  # what is fused with what may differ


def test_variables_keep_their_values_and_the_program_can_run_again() -> None:
    variable, count = tf.Variable([1.0, 2.0]), tf.Variable(0)
    with configured(oflo=True) as strategy:

        @tf.function
        def program(factor: tf.Tensor, steps: tf.Tensor) -> None:
            for _ in tf.range(steps):
                variable.assign(variable * factor)
                count.assign_add(1)

        strategy.run(program, [tf.constant(10.0), tf.constant(3)])
        with pytest.raises(tf.errors.InternalError, match="Tiles in excepted state: an overflow in `while/mul`"):
            strategy.run(program, [tf.constant(1e30), tf.constant(5)])
        np.testing.assert_array_equal(variable, [1e3, 2e3])
        strategy.run(program, [tf.constant(2.0), tf.constant(1)])
    np.testing.assert_array_equal(variable, [2e3, 4e3])
    assert count.numpy() == 4


def test_a_streamed_loop_names_the_replica() -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with configured(2, div0=True) as strategy, strategy.scope():
        iterator = iter(tf.data.Dataset.range(100).map(lambda i: tf.cast(i, tf.float32)))

        @tf.function
        def program(iterator: Any) -> None:
            for _ in tf.range(4):
                queue.enqueue(1.0 / (next(iterator) - 5.0) + tf.cast(replication_index(), tf.float32))

        with pytest.raises(
            tf.errors.InternalError, match=r"division by zero in `while/truediv` on replica 1, the first"
        ):
            strategy.run(program, [iterator])


def test_a_step_loop_keeps_its_variables() -> None:
    with configured(oflo=True):
        weight = tf.Variable(1.0)
        loop = StepLoop(TensorFlowStep(lambda x: weight.assign(weight * x), tf.TensorSpec([], tf.float32)))
        loop.run((), TensorFeed(iter([np.float32(3), np.float32(2)])), 2).raise_for_error()
        with pytest.raises(tf.errors.InternalError, match="Tiles in excepted state"):
            loop.run((), TensorFeed(iter([np.float32(2), np.float32(3e38), np.float32(1)])), 3).raise_for_error()
        loop.run((), TensorFeed(iter([np.float32(0.5)])), 1).raise_for_error()
        flush_variables()
        assert weight.numpy() == 3.0


def test_a_session_raises_the_same_error() -> None:
    with configured(div0=True), tf.Graph().as_default():
        fed = tf.compat.v1.placeholder(tf.float16, [1])
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            result = ipu.ipu_compiler.compile(lambda x: x / 0, [fed])
        with tf.compat.v1.Session() as session, pytest.raises(tf.errors.InternalError, match="Tiles in excepted state"):
            session.run(result, {fed: [1e4]})


def test_only_programs_that_ask_for_it_are_checked() -> None:
    module = lowered(lambda x: tf.exp(x) * x, tf.ones([2]))
    assert EXCEPTIONS not in build_program(module).hidden
    program = build_program(module, numerics=Numerics(exceptions=frozenset({"inv"})))
    assert EXCEPTIONS in program.hidden
    assert [origin.rpartition("/")[2] for origin in program.checked] == ["Exp", "mul"]
    assert "an invalid operation and an overflow in `a/b`" in str(FloatingPointExceptionError(("inv", "oflo"), "a/b"))


@pytest.mark.parametrize(
    "bits",
    [
        lambda x, kinds: exceptions.found("stablehlo.divide", [x, x], [x / x], kinds, elementwise=True),
        lambda x, kinds: exceptions.comparison_exception_bits(x, x, kinds),
        lambda x, kinds: exceptions.conversion_exception_bits(x, np.dtype(np.int32), kinds),
    ],
    ids=["arithmetic", "comparison", "conversion"],
)
def test_the_order_of_kinds_changes_no_program(bits: Callable[..., Any]) -> None:
    """The order of a set of names differs between processes, which share programs by the executable cache."""
    orders = itertools.permutations(KINDS)
    assert len({str(jax.make_jaxpr(lambda x, kinds=kinds: bits(x, kinds))(1.0)) for kinds in orders}) == 1
