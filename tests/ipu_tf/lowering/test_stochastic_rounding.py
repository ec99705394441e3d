"""Stochastic rounding: statistics, seeds, scopes, and equality across replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import ipu_tf as ipu
from ipu_tf import scopes
from ipu_tf.device.numerics import half
from ipu_tf.ops.cross_replica_ops import assume_equal_across_replicas, cross_replica_sum
from ipu_tf.ops.replication_ops import replication_index
from tests.helpers.device_counts import device_work
from tests.ipu_tf.lowering.test_half_precision import Behaviour, configured, on_device

ON, OFF, IDENTICAL = Behaviour.ON, Behaviour.OFF, Behaviour.REPLICA_IDENTICAL_ONLY
NEIGHBOURS = st.floats(-60000, 60000, width=32)


def key(number: int) -> jax.Array:
    return jnp.array([number, 0], jnp.uint32)


def neighbours(number: np.float32) -> tuple[float, float]:
    """The float16 numbers next to a number from below and from above."""
    nearest = np.float16(number)
    if nearest == number:
        return float(nearest), float(nearest)
    other = np.nextafter(nearest, np.float16(np.inf if nearest < number else -np.inf))
    return tuple(sorted((float(nearest), float(other))))  # type: ignore[return-value]


@settings(deadline=None, max_examples=100)
@given(NEIGHBOURS | st.floats(-(2.0**-13), 2.0**-13, width=32), st.integers(0, 2**32 - 1))
def test_results_are_the_neighbours_as_often_as_they_are_near(number: float, seed: int) -> None:
    value, count = np.float32(number), 4096
    got = np.asarray(half.stochastic(jnp.full(count, value), key(seed)), np.float64)
    below, above = neighbours(value)
    assert set(got) <= {below, above}
    if below < above:
        chance = (float(value) - below) / (above - below)
        deviation = np.sqrt(count * chance * (1 - chance))
        assert abs(np.sum(got == above) - count * chance) < 6 * deviation + 2


def test_the_mean_of_many_numbers_is_kept() -> None:
    values = np.random.default_rng(3).normal(size=1 << 18).astype(np.float32)
    error = np.asarray(half.stochastic(jnp.asarray(values), key(5)), np.float64) - values
    spread = np.abs(values) * 2.0**-10
    assert abs(error.sum()) < 5 * np.sqrt((spread**2).sum() / 4)
    assert np.abs(error).max() < spread.max()


def test_drawn_numbers_are_uniform_and_independent() -> None:
    seed, draws, last = key(9), [], None
    for _ in range(8):
        chained = half.next_key(seed)
        last = half.next_key(seed, last)
        np.testing.assert_array_equal(last.seed, chained.seed)
        seed = last.seed
        draws.append(np.asarray(half.uniform(last.key, (1 << 16,)), np.float64))
    draws += [np.asarray(half.uniform(key(10), (1 << 16,)), np.float64)]
    table = np.stack(draws)
    counts = np.stack([np.histogram(row, 64, (0, 1))[0] for row in table])
    assert (((counts - 1024.0) ** 2 / 1024).sum(1) < 63 + 5 * np.sqrt(126)).all()
    correlations = np.corrcoef(np.concatenate([table, np.roll(table, 1, 1)])) - np.eye(18)
    assert np.abs(correlations).max() < 5 / 256


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan, 0.0, -2.5, 9e-8])
def test_special_numbers(number: float) -> None:
    got = np.asarray(half.narrowed(half.stochastic(jnp.full(64, np.float32(number)), key(1))))
    if number == 9e-8:
        assert set(got) == {np.float16(6e-8), np.float16(1.2e-7)}
    else:
        np.testing.assert_array_equal(got, np.full(64, np.clip(number, -65504, 65504), np.float16))


ROUNDS: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x + tf.constant(1e-3, tf.float16),
    "convert": lambda x: tf.cast(tf.cast(x, tf.float32) * 0.1, tf.float16),
    "exponential": lambda x: tf.exp(x),
    "softmax": lambda x: tf.nn.softmax(tf.reshape(x, [-1, 3])),
    "matmul": lambda x: tf.matmul(tf.stack([x, x], 1), tf.constant([[1.0], [3e-4]], tf.float16)),
    "sum": lambda x: tf.reduce_sum(tf.reshape(x, [-1, 8]) / 3, 1),
    "loop": lambda x: tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y / 3), [tf.constant(0), x])[1],
    "branch": lambda x: tf.cond(x[0] > 0, lambda: x / 3, lambda: x),
}


@pytest.mark.parametrize("esr", [ON, OFF])
def test_every_kind_of_op_rounds_as_configured_or_as_its_scope_says(esr: Any) -> None:
    ones = np.ones(4098, np.float16)

    def program(x: tf.Tensor) -> list[list[tf.Tensor]]:
        x = x[:4096] if x.shape[0] % 3 else x
        plain = [function(cut(name, x)) for name, function in ROUNDS.items()]
        with scopes.stochastic_rounding(False):
            off = [function(cut(name, x)) for name, function in ROUNDS.items()]
            with scopes.stochastic_rounding(True):
                on = [function(cut(name, x)) for name, function in ROUNDS.items()]
        return [plain, off, on]

    def cut(name: str, x: tf.Tensor) -> tf.Tensor:
        return x if name == "softmax" else x[:4096]

    plain, off, on = on_device(program, ones, esr=esr)
    for index, name in enumerate(ROUNDS):
        columns = [np.unique(found[index].reshape(len(found[index]), -1)[:, 0]) for found in (plain, off, on)]
        wanted = [1 if esr is OFF else 2, 1, 2]
        assert [min(len(column), 2) for column in columns] == wanted, name


def test_a_scope_around_a_loop_holds_within_it_unless_another_one_does() -> None:
    def program(x: tf.Tensor) -> list[tf.Tensor]:
        def body(i: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> Any:
            with scopes.stochastic_rounding(True):
                a = x / 3
            return i + 1, a, x / 3

        with scopes.stochastic_rounding(False):
            return tf.while_loop(lambda i, a, b: i < 2, body, [tf.constant(0), x, x])[1:]

    inner, outer = on_device(program, np.ones(4096, np.float16), esr=ON)
    assert (len(np.unique(inner)), len(np.unique(outer))) == (2, 1)


def run_casts(strategy: Any, times: int, device: int = 0) -> list[np.ndarray]:
    """Returns 1000 float32 numbers after a cast, in some runs."""
    cast = tf.function(lambda x: tf.cast(x, tf.float16), jit_compile=True)
    with device_work() as work:
        found = [strategy.run(cast, [tf.fill([1000], 0.1)]).numpy() for _ in range(times)]
    assert work.counts.executions == times
    return found


def all_differ(arrays: list[np.ndarray]) -> bool:
    return len({array.tobytes() for array in arrays}) == len(arrays)


def test_every_run_rounds_anew_and_a_seed_starts_again() -> None:
    with configured(esr=ON) as strategy:
        sequences = []
        for seed in (1, 2, 1):
            ipu.utils.reset_ipu_seed(seed)
            sequences.append(run_casts(strategy, 3))
    first, other, again = sequences
    assert all_differ(first + other)
    np.testing.assert_array_equal(first, again)


def test_devices_draw_apart() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = [1, 1]
    config.floating_point_behaviour.esr = ON
    config.configure_ipu_system()
    try:
        found = [run_casts(ipu.ipu_strategy.IPUStrategy(f"/device:IPU:{k}"), 2) for k in range(2)]
    finally:
        ipu.config.reset_ipu_configuration()
    assert all_differ(found[0] + found[1])


def rows_of_replicas(count: int, body: Callable[[tf.Tensor], Any], runs: int = 1, **behaviour: Any) -> Any:
    """Returns the numbers that each replica rounds in some runs: tensors `[runs, replicas, 1000]`."""
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with configured(count, **behaviour) as strategy:

        @tf.function(autograph=False)
        def program(x: tf.Tensor) -> None:
            queue.enqueue(body(x))

        ipu.utils.reset_ipu_seed(1, experimental_identical_replicas=runs > 1)
        for _ in range(runs):
            strategy.run(program, [tf.fill([1000], 0.1)])
        return tf.nest.map_structure(lambda rows: rows.numpy(), queue.dequeue())


def half_of(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float16)


def test_replicas_draw_apart_unless_their_seeds_are_the_same() -> None:
    [apart] = rows_of_replicas(4, half_of, esr=ON)
    assert all_differ(list(apart))
    alike = rows_of_replicas(4, half_of, runs=3, esr=ON)
    assert all((run == run[0]).all() for run in alike)
    assert all_differ(list(alike[:, 0]))


OWN: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "own number": lambda x: half_of(x + 0 * tf.cast(replication_index(), tf.float32)),
    "random": lambda x: half_of(x + 0 * tf.random.uniform([1000])),
    "sum of some": lambda x: half_of(cross_replica_sum(x + 0 * tf.random.uniform([1000]), 2) / 2),
    "in a loop": lambda x: half_of(
        tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + 0 * tf.random.uniform([1000])), [tf.constant(0), x])[
            1
        ]
    ),
    "branch": lambda x: half_of(tf.cond(replication_index() > 4, lambda: x * 2, lambda: x)),
}
SHARED: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "input": half_of,
    "sum": lambda x: half_of(cross_replica_sum(x + 0 * tf.random.uniform([1000])) / 4),
    "said to be equal": lambda x: half_of(assume_equal_across_replicas(x + 0 * tf.random.uniform([1000]))),
    "in a loop": lambda x: half_of(
        tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + 0), [tf.constant(0), x])[1]
    ),
}


def each(table: dict[str, Callable[[tf.Tensor], tf.Tensor]]) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """All functions of a table as one."""
    return lambda x: {name: function(x) for name, function in table.items()}


@pytest.mark.parametrize("esr", [ON, IDENTICAL])
def test_with_stable_seeds_what_replicas_share_is_rounded_alike(esr: Any) -> None:
    for name, [rows] in rows_of_replicas(4, each(SHARED), esr=esr, stable=True).items():
        assert (rows == rows[0]).all(), name
        assert len(np.unique(rows)) == 2, name


def test_what_is_each_replicas_own_is_rounded_apart_or_to_nearest() -> None:
    for name, [rows] in rows_of_replicas(4, each(OWN), esr=ON, stable=True).items():
        assert all_differ(list(rows)), name
    for name, [rows] in rows_of_replicas(4, each(OWN), esr=IDENTICAL).items():
        assert (rows == np.float16(0.1)).all(), name


def test_weights_of_replicas_stay_equal_with_stable_seeds() -> None:
    """Float16 weights, trained by what replicas sum up of elements of their own."""
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with configured(2, stable=True, esr=ON) as strategy, strategy.scope():
        weights = tf.Variable(tf.ones([256], tf.float16))
        iterator = iter(
            tf.data.Dataset.from_tensor_slices(np.random.default_rng(0).normal(size=(64, 256))).map(half_of)
        )

        @tf.function
        def program(iterator: Any) -> None:
            for _ in tf.range(8):
                gradient = cross_replica_sum(next(iterator) * weights)
                weights.assign_sub(gradient * tf.constant(0.01, tf.float16))
                queue.enqueue(weights.read_value())

        strategy.run(program, [iterator])
        rows = queue.dequeue().numpy()
    assert rows.shape == (8, 2, 256)
    np.testing.assert_array_equal(rows[:, 0], rows[:, 1])
    assert np.isfinite(rows).all()
    assert (rows[-1] != 1).mean() > 0.9


def test_small_updates_add_up_on_average() -> None:
    """1 + 1000 times 0.0001: to nearest nothing is ever added."""

    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(
            lambda i, y: i < 1000, lambda i, y: (i + 1, y + tf.constant(1e-4, tf.float16)), [tf.constant(0), x]
        )[1]

    ones = np.ones(1024, np.float16)
    nearest, stochastic = (on_device(program, ones, esr=esr) for esr in (OFF, ON))
    assert (nearest == 1).all()
    assert abs(stochastic.astype(np.float64).mean() - 1.1) < 0.002
