"""Scopes: their attributes on ops; they change no value."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf import scopes
from ipu_tf.lowering.tensorflow import tf_graphs
from ipu_tf.lowering.tensorflow.trace import lower
from tests.helpers.device_counts import device_work

tf1 = tf.compat.v1


@contextlib.contextmanager
def device(ipus: int) -> Iterator[Any]:
    """A strategy for a device of so many IPUs."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()
    try:
        yield ipu.ipu_strategy.IPUStrategy()
    finally:
        ipu.config.reset_ipu_configuration()


def carried() -> dict[str, str]:
    """The frontend attributes of an op made here."""
    operation = tf.constant(1.0).op
    if scopes.FRONTEND_ATTRIBUTES_NAME not in operation.node_def.attr:
        return {}
    return tf_graphs.string_map(operation.get_attr(scopes.FRONTEND_ATTRIBUTES_NAME))


def test_frontend_attributes_nest() -> None:
    with tf.Graph().as_default():
        with scopes.frontend_attribute("a", "1"):
            with scopes.frontend_attribute("b", "2"), scopes.frontend_attribute("a", "3"):
                assert carried() == {"a": "3", "b": "2"}
            assert carried() == {"a": "1"}
        assert carried() == {}


def test_frontend_attributes_restore() -> None:
    with tf.Graph().as_default():
        with scopes.frontend_attribute("a", "1", restore_to="0"):
            pass
        assert carried() == {"a": "0"}
        with scopes.frontend_attribute("a", "2", restore_to="9"):
            assert carried() == {"a": "2"}
        assert carried() == {"a": "0"}


def test_stochastic_rounding() -> None:
    with tf.Graph().as_default():
        with scopes.stochastic_rounding(False), scopes.stochastic_rounding(True):
            assert carried() == {"STOCHASTIC_ROUNDING": "THREESTATE_ON"}
        with scopes.stochastic_rounding(False):
            assert carried() == {"STOCHASTIC_ROUNDING": "THREESTATE_OFF"}
        assert carried() == {"STOCHASTIC_ROUNDING": "THREESTATE_UNDEFINED"}


@pytest.mark.parametrize(("wanted", "name"), [(np.float16, "F16"), (tf.float32, "F32"), ("float32", "F32")])
def test_partials_type(wanted: Any, name: str) -> None:
    with tf.Graph().as_default():
        with scopes.partials_type(wanted):
            assert carried() == {"PARTIALS_TYPE": name}
        assert carried() == {"PARTIALS_TYPE": "PRIMITIVE_TYPE_INVALID"}


@pytest.mark.parametrize("wrong", [np.float64, tf.int32])
def test_other_partials_types(wrong: Any) -> None:
    with pytest.raises(ValueError, match="Only support float16, float32, provided"), scopes.partials_type(wrong):
        pass


def test_frontend_attributes_reach_the_lowered_program() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        with scopes.stochastic_rounding(True):
            return tf.cast(x, tf.float16)

    text = str(lower(tf.function(program).get_concrete_function(tf.TensorSpec([2]))).module.mlir)
    assert 'stablehlo.convert %0 {mhlo.frontend_attributes = {STOCHASTIC_ROUNDING = "THREESTATE_ON"}}' in text


#: Scopes, and how many IPUs a device needs for a program with them.
SCOPES: dict[str, tuple[Callable[[], Any], int]] = {
    "jit": (lambda: scopes.ipu_jit_scope(3), 1),
    "outside": (scopes.outside_compilation_scope, 1),
    "shard": (lambda: scopes.ipu_shard(2), 4),
    "shards": (lambda: scopes.ipu_shard([0, 1]), 2),
    "stochastic rounding": (lambda: scopes.stochastic_rounding(False), 1),
    "partials": (lambda: scopes.partials_type(np.float16), 1),
    "attribute": (lambda: scopes.frontend_attribute("name", "value"), 1),
}


def model(x: tf.Tensor, scope: Callable[[], Any]) -> Any:
    """Products, a loop, a branch and gradients, parts of them in a scope."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        with scope():
            y = tf.tanh(x @ x)
            y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.sin(y)), [0, y], maximum_iterations=3)[1]
            y = tf.cond(tf.reduce_sum(y) > 0, lambda: y + 1, lambda: y - 1)
        z = tf.reduce_sum(y * y)
    return z, tape.gradient(z, x)


@pytest.mark.parametrize("name", SCOPES)
def test_values_do_not_depend_on_scopes(name: str) -> None:
    def result(scope: Callable[[], Any], ipus: int) -> Any:
        with device(ipus) as strategy:
            return strategy.run(tf.function(lambda x: model(x, scope), autograph=False, jit_compile=True), [x])

    x = tf.constant(np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3))
    with device_work() as work:
        mine, plain = result(*SCOPES[name]), result(contextlib.nullcontext, 1)
    for got, wanted in zip(mine, plain, strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert work.counts.executions == 2


@pytest.mark.parametrize("name", SCOPES)
def test_scopes_in_a_session(name: str) -> None:
    scope, ipus = SCOPES[name]

    def program(x: tf.Tensor) -> tf.Tensor:
        with scope():
            return x * 2

    with device(ipus), tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [2])
        with scopes.ipu_scope("/device:IPU:0"):
            result = ipu.ipu_compiler.compile(program, [x])
        [doubled] = session.run(result, {x: [1, 2]})
    np.testing.assert_array_equal(doubled, [2, 4])


def test_outside_compilation_only_in_programs() -> None:
    text = "outside_compilation_scope is only allowed in XLA context"
    with tf.Graph().as_default(), pytest.raises(ValueError, match=text), scopes.outside_compilation_scope():
        pass


def test_outside_compilation_does_not_nest() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        with scopes.outside_compilation_scope("one"), scopes.outside_compilation_scope("two"):
            return x

    with pytest.raises(ValueError, match="Illegal nesting of outside_compilation_scope"):
        tf.function(program, autograph=False, jit_compile=True).get_concrete_function(tf.TensorSpec([]))


def test_what_has_no_effect_is_listed() -> None:
    with scopes.ipu_jit_scope("mine"), tf.Graph().as_default(), scopes.partials_type(np.float16):
        pass
    listed = {item.name: item.value for item in ipu.emulation.ignored_arguments()}
    assert listed["ipu_jit_scope.ipu_scope"] == "'mine'"
    assert listed["partials_type.override_type"] == "'float16'"
