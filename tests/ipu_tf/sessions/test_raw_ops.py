"""Raw ops by Graphcore's names, and TensorFlow ops that the device computes otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.emulation import EmulationError
from ipu_tf.poplar.ops import gen_poprand_ops, gen_poputil_ops
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

tf1 = tf.compat.v1


@pytest.fixture
def session() -> Iterator[Any]:
    with tf.Graph().as_default(), tf1.Session() as session, ipus(1):
        yield session


def compiled(computation: Any) -> Any:
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        return ipu.ipu_compiler.compile(computation)


def test_dropout_tells_its_seed(session: Any) -> None:
    ones = np.ones([64], np.float32)

    def model() -> list[Any]:
        x = tf.constant(ones)
        output, seed, reference = gen_poprand_ops.ipu_dropout(x, rate=0.25, scale=4.0)
        again, same = gen_poprand_ops.ipu_dropout_with_seed_no_ref(x, seed, rate=0.25, scale=4.0)
        back, _ = gen_poprand_ops.ipu_dropout_with_seed_and_reference(2.0 * x, seed, reference, rate=0.25, scale=4.0)
        [gradient] = tf.gradients(output, x)
        other, drawn = gen_poprand_ops.ipu_dropout_no_ref(x, rate=0.25, scale=4.0, noise_shape=[1])
        fixed, given, _ = gen_poprand_ops.ipu_dropout_with_seed(x, [3, 4], rate=0.25, scale=4.0)
        return [output, seed, again, same, back, gradient, other, drawn, fixed, given]

    program = compiled(model)
    with device_work() as did:
        runs = [session.run(program) for _ in range(2)]
    assert did.counts.executions == 2
    for output, seed, again, same, back, gradient, other, drawn, _, given in runs:
        assert set(np.unique(output)) == {0.0, 4.0}
        for mask in (again, back / 2, gradient):
            np.testing.assert_array_equal(mask, output)
        np.testing.assert_array_equal(seed, same)
        assert len(set(other)) == 1
        assert list(drawn) != list(seed)
        assert list(given) == [3, 4]
    assert list(runs[0][1]) != list(runs[1][1])
    np.testing.assert_array_equal(runs[0][8], runs[1][8])


def test_sums_over_iterations(session: Any) -> None:
    variable = tf1.get_variable("momentum", [1], initializer=tf1.zeros_initializer(), use_resource=True)

    def body(total: tf.Tensor, trail: tf.Tensor) -> Any:
        summed = gen_poputil_ops.ipu_stateful_gradient_accumulate(tf.ones([1]), 3, verify_usage=False)
        moved = gen_poputil_ops.ipu_stateful_gradient_accumulate_with_momentum(
            variable.handle, 2.0 * tf.ones([1]), momentum=0.5, num_mini_batches=3
        )
        return total + summed, trail + moved

    program = compiled(lambda: ipu.loops.repeat(6, body, [tf.zeros([1]), tf.zeros([1])]))
    session.run(tf1.global_variables_initializer())
    with device_work() as did:
        total, trail = session.run(program)
    assert did.counts.steps == 6
    # 6, then 0.5 * 6 + 6; in the iterations between nothing is added.
    assert (total, trail, session.run(variable)) == ([6.0], [15.0], [9.0])


@pytest.mark.parametrize("name", ["uniform_candidate_sampler", "log_uniform_candidate_sampler"])
def test_tensorflows_samplers_in_programs(session: Any, name: str) -> None:
    def sampled(seed: int | None) -> Any:
        return getattr(tf.random, name)(tf.constant([[0, 3]], tf.int64), 2, 5, True, 20, seed)

    host = sampled(7)
    program = compiled(lambda: [*sampled(7), *sampled(None)])
    with device_work() as did:
        first, second = session.run(program), session.run(program)
    assert did.counts.executions == 2
    np.testing.assert_array_equal(first[0], second[0])
    assert list(first[3]) != list(second[3])
    for samples, expected, of_samples in (first[:3], first[3:], session.run(host)):
        assert len(set(samples)) == 5
        assert set(samples) <= set(range(20))
        assert expected.shape == (1, 2)
        assert of_samples.shape == (5,)


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 2, 2**31 - 1])
@pytest.mark.parametrize("own", [None, 2**31 - 2])
def test_a_global_seed_gives_other_samples_in_every_execution(session: Any, seed: int, own: int | None) -> None:
    tf1.set_random_seed(seed)
    program = compiled(lambda: tf.random.log_uniform_candidate_sampler([[0]], 1, 5, True, 1000, own)[0])
    with device_work() as did:
        runs = [tuple(np.ravel(session.run(program))) for _ in range(4)]
    assert did.counts.executions == 4
    assert len(set(runs)) == 4


def test_an_op_that_only_the_device_knows_is_placed_there(session: Any) -> None:
    x = tf.random.uniform([4])
    total = ipu.cross_replica_ops.cross_replica_sum(x)
    with device_work() as did:
        before, after = session.run([x, total])
    assert did.counts.executions == 1
    np.testing.assert_array_equal(before, after)


def test_raw_ops_that_are_not_there_say_what_to_use() -> None:
    with pytest.raises(EmulationError, match=r"gen_poprand_ops.ipu_made_up: .* Use ipu.rand_ops"):
        gen_poprand_ops.ipu_made_up  # noqa: B018
