"""Custom ops: registered functions, and expressions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf import vertex_edsl
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

Strategy = ipu.ipu_strategy.IPUStrategyV1
user_op = ipu.custom_ops.precompiled_user_op
expression_op = ipu.custom_ops.codelet_expression_op


def outs(*shapes: list[int]) -> dict[str, Any]:
    """float32 outputs of some shapes."""
    return {"output_types": [tf.float32] * len(shapes), "output_shapes": [tf.TensorShape(s) for s in shapes]}


def run(strategy: Strategy, function: Callable[..., Any], *args: Any) -> Any:  # noqa: F811
    """The results of a function on the device."""
    with device_work() as work:
        results = strategy.run(tf.function(function, autograph=False), [tf.constant(a, tf.float32) for a in args])
    assert work.counts.executions == 1
    return tf.nest.map_structure(lambda t: t.numpy().tolist(), results)


@pytest.mark.parametrize("call", [user_op, ipu.custom_ops.cpu_user_operation])
def test_a_registered_function_in_a_program(strategy: Strategy, call: Callable[..., Any]) -> None:  # noqa: F811
    ipu.register_user_op("libpair.so", "Op", lambda x, y: (x + 1, x * y))

    def program(x: tf.Tensor, y: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            a, b = call([x, y], "/somewhere/libpair.so", outs=outs([2], [2]), op_name="Op")
            total = tf.reduce_sum(a) + tf.reduce_sum(b)
        return a, b, tape.gradient(total, [x, y])

    assert run(strategy, program, [1, 2], [3, 4]) == ([2, 3], [3, 8], [[4, 5], [1, 2]])


def test_gradients_of_its_own(strategy: Strategy) -> None:  # noqa: F811
    def gradients(upstream: Any, inputs: Any, outputs: Any, attributes: str) -> Any:
        return [upstream[0] * inputs[1] * float(attributes), upstream[0] * outputs[0]]

    def function(x: tf.Tensor, y: tf.Tensor, attributes: str) -> tf.Tensor:
        return x * float(attributes)

    ipu.register_user_op("libown.so", "Build", function, gradients)

    def program(x: tf.Tensor, y: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            [z] = user_op([x, y], "libown.so", outs=outs([]), attributes="10", gradient_attributes="100")
        return z, tape.gradient(z, [x, y])

    assert run(strategy, program, 2, 3) == (20, [300, 20])


@pytest.mark.parametrize(("chosen", "wanted"), [(None, [1, 2, 3]), ([2, 0], [10, None, 30]), ([], [None] * 3)])
def test_separate_gradients_and_inputs_without(strategy: Strategy, chosen: Any, wanted: list[Any]) -> None:  # noqa: F811
    def one(upstream: Any, inputs: Any, outputs: Any, input_index: int) -> Any:
        return upstream[0] * (input_index + 1) * (10 if chosen else 1)

    ipu.register_user_op("libsep.so", "Sep", lambda x, y, z: x + y + z, one)

    def program(*xs: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(xs)
            [s] = user_op(
                xs, "libsep.so", op_name="Sep", outs=outs([]), separate_gradients=True, inputs_with_gradients=chosen
            )
        found = tape.gradient(s, list(xs))
        assert [g is None for g in found] == [w is None for w in wanted]
        return [s, *(g for g in found if g is not None)]

    assert run(strategy, program, 1, 2, 3) == [6, *(w for w in wanted if w is not None)]


def test_no_outputs() -> None:
    ipu.register_user_op("libnone.so", "Build", lambda x: [])
    assert user_op([tf.constant(1.0)], "libnone.so", gp_path="x.gp") == []


def test_a_missing_library() -> None:
    with pytest.raises(tf.errors.NotFoundError, match=r"/no/libmissing\.so: cannot open shared object file"):
        user_op([tf.constant(1.0)], "/no/libmissing.so", outs=outs([]))


def test_an_unregistered_op_of_a_library(tmp_path: Path) -> None:
    library = tmp_path / "libthere.so"
    library.write_bytes(b"")
    ipu.register_user_op("libthere.so", "Other", tf.abs)
    with pytest.raises(ipu.emulation.EmulationError, match=r"`Build` of .*libthere\.so.*register_user_op.*Other"):
        user_op([tf.constant(1.0)], str(library), outs=outs([]))


BAD_CALLS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "attributes": (
        lambda: user_op([], "libx.so", attributes=3),  # type: ignore[arg-type]
        ValueError,
        "Expected attributes to be a 'str' type, but was <class 'int'>",
    ),
    "gradient attributes": (
        lambda: user_op([], "libx.so", gradient_attributes=[1]),  # type: ignore[arg-type]
        ValueError,
        "Expected gradient_attributes to be a 'str' type, but was <class 'list'>",
    ),
    "no function": (
        lambda: ipu.register_user_op("l.so", "Op", 3),  # type: ignore[arg-type]
        TypeError,
        "needs a function as `fn`",
    ),
    "no gradient function": (
        lambda: ipu.register_user_op("l.so", "Op", abs, 3),  # type: ignore[arg-type]
        TypeError,
        "needs a function as `grad_fn`",
    ),
    "no expression": (lambda: expression_op(abs), ValueError, "at least one tensor.*Received: none"),
    "mixed dtypes": (
        lambda: expression_op(lambda x, y: x + y, tf.constant(1), tf.constant(1.0)),
        ValueError,
        "all of one dtype",
    ),
    "a number": (lambda: expression_op(lambda x: x + 2, tf.constant(1.0)), TypeError, "vertex_edsl.constant"),
    "no result": (lambda: expression_op(lambda x: None, tf.constant(1.0)), TypeError, "combine with expressions"),
    "division": (lambda: expression_op(lambda x: x / x, tf.constant(1.0)), TypeError, "unsupported operand"),
    "comparison": (lambda: expression_op(lambda x: x < x, tf.constant(1.0)), TypeError, "not supported between"),
    "a text": (
        lambda: vertex_edsl.constant("2"),  # type: ignore[arg-type]
        NotImplementedError,
        "must be an int or a float",
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls(name: str) -> None:
    call, error, text = BAD_CALLS[name]
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("shape", [[3], []])
def test_outputs_other_than_promised(shape: list[int]) -> None:
    ipu.register_user_op("libshape.so", "Build", lambda x: tf.zeros([2]))
    with pytest.raises(ValueError, match=r"`Build` of libshape\.so should give .* as `outs` says"):
        user_op([tf.constant(1.0)], "libshape.so", outs=outs(shape))


def test_a_gradient_function_with_too_few_gradients() -> None:
    ipu.register_user_op("libfew.so", "Build", lambda x, y: x + y, lambda upstream, inputs, outputs: upstream[:1])
    x = tf.Variable(1.0)
    with tf.GradientTape() as tape:
        [y] = user_op([x, x], "libfew.so", outs=outs([]))
    with pytest.raises(ValueError, match="has gradients for 2 inputs. Its registered grad_fn gave: 1"):
        tape.gradient(y, x)


EXPRESSIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "products": (lambda x, y, z: x * x + y * z, lambda x, y, z: x * x + y * z),
    "signs": (lambda x, y, z: abs(-x) - +y + ~z, lambda x, y, z: np.abs(x) - y - z),
    "constants": (
        lambda x, y, z: x * vertex_edsl.constant(3) - vertex_edsl.constant(0.5),
        lambda x, y, z: x * 3 - np.float32(0.5) + 0 * y * z,
    ),
    "let": (
        lambda x, y, z: vertex_edsl.let(x + y, lambda s: vertex_edsl.let(s * z, lambda t: t - s)),
        lambda x, y, z: (x + y) * z - (x + y),
    ),
    "condition": (
        lambda x, y, z: vertex_edsl.condition(x, y, z),
        lambda x, y, z: np.where(x != 0, y, z) + 0 * x,
    ),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions(strategy: Strategy, name: str) -> None:  # noqa: F811
    mine, numpys = EXPRESSIONS[name]
    x = np.array([[0.0], [1.5], [-2.0]], np.float32)
    y, z = np.array([3.0], np.float32), np.array([[1.0, -4.0]], np.float32)
    result = run(strategy, lambda *tensors: expression_op(mine, *tensors), x, y, z)
    np.testing.assert_allclose(result, numpys(x, y, z))


def test_integers_stay_integers() -> None:
    result = expression_op(lambda x: x * x - vertex_edsl.constant(1), tf.constant([2, 3]))
    assert result.dtype == tf.int32
    assert result.numpy().tolist() == [3, 8]


def test_expressions_have_no_gradient() -> None:
    x = tf.Variable(1.0)
    with tf.GradientTape() as tape:
        y = expression_op(lambda x: x * x, x)
    with pytest.raises(LookupError, match="codelet_expression_op has no gradient"):
        tape.gradient(y, x)


def test_types_of_expressions() -> None:
    one, half = vertex_edsl.constant(1), vertex_edsl.constant(0.5)
    assert isinstance((one + half).getType(), vertex_edsl.Int32)
    assert isinstance((half + one).getType(), vertex_edsl.Float32)
    assert vertex_edsl.Float32().getElementType() == vertex_edsl.BaseType.Float32
    sequence = vertex_edsl.Sequence(vertex_edsl.Float16())
    assert (sequence.getType(), sequence.getElementType()) == (
        vertex_edsl.BaseType.Sequence,
        vertex_edsl.BaseType.Float16,
    )
    assert vertex_edsl.Int16().getType() == 1
    assert vertex_edsl.Unknown().getType() == 0
    assert str(-one * one) == "((0-1)*1)"
    assert "let var" in str(vertex_edsl.let(one, lambda v: abs(v)))
    assert str(vertex_edsl.condition(one, one, one)) == "(if 1 then 1 else 1)"
