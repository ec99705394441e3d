"""Shards: read back from ops, inherited by gradients, counted in programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf import scopes, sharding
from ipu_tf.lowering.tensorflow.shards import set_shard_attribute, shard_count_of

tf1 = tf.compat.v1


def shards_of(tensor: tf.Tensor) -> list[int] | None:
    """The shards of the op that gives a tensor."""
    return sharding.get_sharding(tensor.op)


def traced(function: Callable[..., Any], *specs: tf.TensorSpec) -> Any:
    """A function's graph."""
    return tf.function(function, autograph=False, jit_compile=True).get_concrete_function(*specs).graph


def by_gradients(target: tf.Tensor, source: tf.Tensor, tape: Any) -> tf.Tensor:
    """A gradient, asked of the graph."""
    return tf.gradients(target, source)[0]


def by_tape(target: tf.Tensor, source: tf.Tensor, tape: Any) -> tf.Tensor:
    """A gradient, asked of the tape."""
    return tape.gradient(target, source)


@pytest.mark.parametrize("gradient", [by_gradients, by_tape])
def test_gradients_are_on_the_shard_of_the_forward_op(gradient: Callable[..., tf.Tensor]) -> None:
    found: dict[str, Any] = {}

    def program(x: tf.Tensor) -> None:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            free = tf.sin(x)
            with scopes.ipu_shard(2):
                a = tf.matmul(free, tf.ones([3, 3]))
                with scopes.ipu_shard([0, 1]):
                    b = tf.tanh(a)
            c = tf.exp(b)
            loss = tf.reduce_sum(c)
        with scopes.ipu_shard(7):
            for name, tensor in (("free", free), ("a", a), ("b", b)):
                found[name] = (shards_of(tensor), shards_of(gradient(loss, tensor, tape)))

    traced(program, tf.TensorSpec([3, 3]))
    # The gradient of a tensor is given by the op that uses it: b by the free exp, a by tanh, free by matmul.
    assert found == {"b": ([0, 1], [7]), "a": ([2], [0, 1]), "free": (None, [2])}


@pytest.mark.parametrize("gradient", [by_gradients, by_tape])
def test_without_shards_gradients_have_none(gradient: Callable[..., tf.Tensor]) -> None:
    found = []

    def program(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.matmul(x, tf.constant([[1.0]]))
            with scopes.ipu_shard(0):
                loss = tf.reduce_sum(y)
        found.append(shards_of(gradient(loss, x, tape)))

    traced(program, tf.TensorSpec([1, 1]))
    assert found == [None]


def test_gradients_of_gradients_too() -> None:
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [2, 2])
        with scopes.ipu_shard(1):
            y = tf.matmul(x, tf.ones([2, 2]))
            loss = tf.reduce_sum(y**3)
        [first] = tf.gradients(loss, x)
        [second] = tf.gradients(first, y)
        assert sharding.get_sharding(first.op) == [1]
        assert sharding.get_sharding(second.op) == [1]


def test_gradients_of_ones_own_are_kept() -> None:
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [])
        with scopes.ipu_shard(1):
            y = tf.custom_gradient(lambda x: (tf.identity(x), lambda up: 7 * up))(x)
        [found] = tf.gradients(y, x)
        with tf1.Session() as session:
            assert session.run(found, {x: 3.0}) == 7.0


COUNTS: dict[str, tuple[Callable[[tf.Tensor], Any], int]] = {
    "none": (lambda x: x + 1, 1),
    "straight": (lambda x: in_shard(3, lambda: x + 1), 4),
    "list": (lambda x: in_shard([1, 5], lambda: x + 1), 6),
    "loop": (lambda x: tf.while_loop(lambda x: x < 9, lambda x: in_shard(2, lambda: x + 1), [x]), 3),
    "branch": (lambda x: tf.cond(x > 0, lambda: x, lambda: in_shard(1, lambda: x + 1)), 2),
    "function": (lambda x: tf.function(lambda x: in_shard(6, lambda: x + 1))(x), 7),
}


def in_shard(index: Any, make: Callable[[], Any]) -> Any:
    """Ops that are made on a shard."""
    with scopes.ipu_shard(index):
        return make()


@pytest.mark.parametrize("name", COUNTS)
def test_shards_are_counted_however_deep(name: str) -> None:
    function, count = COUNTS[name]
    assert shard_count_of(traced(function, tf.TensorSpec([]))) == count


def test_an_index_below_zero() -> None:
    with pytest.raises(ValueError, match=r"must be at least 0. Received: \[0, -1\]"), scopes.ipu_shard([0, -1]):
        pass


def test_dependencies() -> None:
    with tf.Graph().as_default():
        a, b, other = tf.constant(1.0), tf.constant(2.0), tf.constant(3.0)
        with tf.control_dependencies([b]):
            c = tf.identity(a)
        assert sharding.dependencies([c]) == {a.op, b.op, c.op}
        assert sharding.dependencies([c.op, other]) == {a.op, b.op, c.op, other.op}
        assert sharding.has_attr(a.op, "dtype")
        assert not sharding.has_attr(a.op, "_class")


def test_propagation() -> None:
    with tf.Graph().as_default() as graph:
        with scopes.ipu_shard(3):
            a = tf.constant(1.0)
        free = tf.constant(2.0)
        with tf1.colocate_with(a):
            b = tf.constant(1.0)
        with tf1.colocate_with(b), tf1.colocate_with(free):
            c = tf.constant(1.0)
        fed = a + free
        assert sharding.get_shard_from_colocation(b.op) == [3]
        assert sharding.get_shard_from_colocation(fed.op) == [3]
        assert sharding.get_shard_from_colocation(free.op) is None
        sharding.propagate_sharding(graph)
        assert [shards_of(t) for t in (a, b, free, fed)] == [[3], [3], None, None]
        set_shard_attribute(c.op, [4])
        assert shards_of(c) == [4]


def test_the_sharded_optimizer() -> None:
    with tf.Graph().as_default():
        with scopes.ipu_shard(1):
            w = tf1.get_variable("w", [2, 2], use_resource=True)
            loss = tf.reduce_sum(tf.matmul(w, tf.ones([2, 2])))
        optimizer = ipu.optimizers.ShardedOptimizer(tf1.train.GradientDescentOptimizer(0.1))
        [(gradient, variable)] = optimizer.compute_gradients(loss)
        assert variable is w
        assert sharding.get_sharding(gradient.op) == [1]
        before = set(tf1.get_default_graph().get_operations())
        optimizer.apply_gradients([(gradient, w)])
        made = [op for op in tf1.get_default_graph().get_operations() if op not in before]
        updates = [op for op in made if op.type == "ResourceApplyGradientDescent"]
        assert [sharding.get_sharding(op) for op in updates] == [[1]]
