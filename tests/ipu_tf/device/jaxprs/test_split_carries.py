"""Loops that carry the parts of stacked arrays: the same bits, and no array that is stacked in each iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.extend import core

from ipu_tf.device.jaxprs.flat_equations import inner
from ipu_tf.device.jaxprs.split_carries import with_split_carries
from tests.helpers.library_jit import jit

Cache = jax.Array
LAYERS, BATCH, LENGTH, WIDTH = 3, 2, 5, 4
Body = Callable[[Cache, jax.Array, Any], tuple[Cache, jax.Array]]


def traced(function: Callable[..., Any], *arguments: Any) -> core.ClosedJaxpr:
    return jax.make_jaxpr(function)(*arguments)


def joins_in_loops(graph: core.Jaxpr, within: bool = False) -> int:
    """Counts what is stacked to layers and caches in loops; indices of updates are small."""
    found = 0
    for eqn in graph.eqns:
        made: Any = eqn.outvars[0].aval if eqn.outvars else None
        found += within and eqn.primitive.name in ("stack", "concatenate") and made.ndim >= 4
        found += sum(joins_in_loops(each, within or eqn.primitive.name in ("while", "scan")) for each in inner(eqn))
    return found


def layer(keys: Cache, values: Cache, x: jax.Array, at: Any) -> tuple[Cache, Cache, jax.Array]:
    """Writes a row of each, and reads all rows, as attention does."""
    keys = lax.dynamic_update_slice(keys, x[:, None] * 0.5, (0, at, 0))
    values = lax.dynamic_update_slice(values, x[:, None] + 1, (0, at, 0))
    scores = jnp.einsum("bd,btd->bt", x, keys)
    return keys, values, jnp.tanh(x + jnp.einsum("bt,btd->bd", scores, values))


def as_kerashub(cache: Cache, x: jax.Array, at: Any) -> tuple[Cache, jax.Array]:
    layers = []
    for number in range(cache.shape[1]):
        keys, values, x = layer(cache[:, number, 0], cache[:, number, 1], x, at)
        layers.append(jnp.stack((keys, values), axis=1))
    return jnp.stack(layers, axis=1), x


def loop(body: Body, steps: Any = 4) -> Callable[[Cache, jax.Array], Any]:
    def run(cache: Cache, x: jax.Array) -> Any:
        def step(state: Any) -> Any:
            return *body(*state), state[2] + 1

        return lax.while_loop(lambda state: state[2] < steps, step, (cache, x, jnp.int32(1)))

    return run


def example(layers: int = LAYERS, batch: int = BATCH) -> tuple[Cache, jax.Array]:
    random = np.random.default_rng(0)
    cache = random.standard_normal((batch, layers, 2, LENGTH, WIDTH), np.float32)
    return jnp.asarray(cache), jnp.asarray(random.standard_normal((batch, WIDTH), np.float32))


def check_same(function: Callable[..., Any], arguments: Any, splits: bool = True) -> core.ClosedJaxpr:
    """Compares results, bit by bit, and whether anything is split."""
    before = traced(function, *arguments)
    after = with_split_carries(before)
    assert (after is not before) == splits
    for expected, found in zip(function(*arguments), core.jaxpr_as_fun(after)(*arguments), strict=True):
        np.testing.assert_array_equal(found, expected)
    return after


def test_nothing_is_stacked_in_the_loop() -> None:
    before = traced(loop(as_kerashub), *example())
    assert joins_in_loops(before.jaxpr) == LAYERS + 1
    assert joins_in_loops(check_same(loop(as_kerashub), example()).jaxpr) == 0


@settings(max_examples=15, deadline=None)
@given(
    layers=st.integers(1, 4),
    batch=st.integers(1, 3),
    steps=st.integers(0, 9),
    order=st.permutations(range(4)),
    joined=st.booleans(),
)
def test_any_number_of_layers_in_any_order(layers: int, batch: int, steps: int, order: list[int], joined: bool) -> None:
    """Steps behind the end of the cache write its last row; layers may change places."""
    places = [place for place in order if place < layers]

    def body(cache: Cache, x: jax.Array, at: Any) -> tuple[Cache, jax.Array]:
        made = []
        for number in places:
            both = cache[:, number]
            keys, values, x = layer(both[:, 0], both[:, 1], x, at)
            both = jnp.concatenate((keys[:, None], values[:, None]), axis=1)
            made.append(both[:, None] if joined else both)
        return jnp.concatenate(made, axis=1) if joined else jnp.stack(made, axis=1), x

    check_same(loop(body, steps), example(layers, batch))


def redrawn(draw: st.DrawFn, array: jax.Array, at: Any, depth: int) -> jax.Array:
    """Cuts an array into parts, which may be empty or of one element, changes them, and joins them again."""
    if not depth:
        return array * 0.5 + at
    axis = draw(st.integers(0, array.ndim - 1))
    cuts = sorted(draw(st.lists(st.integers(0, array.shape[axis]), max_size=2)))
    limits = zip([0, *cuts], [*cuts, array.shape[axis]], strict=True)
    parts = [lax.slice_in_dim(array, start, limit, axis=axis) for start, limit in limits]
    return jnp.concatenate([redrawn(draw, part, at, depth - 1) for part in parts], axis=axis)


@settings(max_examples=40, deadline=None)
@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=3), data=st.data())
def test_any_cuts(shape: list[int], data: st.DataObject) -> None:
    """A body is traced once for each example: it draws its cuts while it is."""

    @st.composite
    def program(draw: st.DrawFn) -> core.ClosedJaxpr:
        def body(array: jax.Array, x: jax.Array, at: Any) -> tuple[jax.Array, jax.Array]:
            return redrawn(draw, array, at, 2), x + 1

        return traced(loop(body), jnp.zeros(shape), jnp.zeros(1))

    drawn = data.draw(program())
    array = jnp.arange(float(np.prod(shape))).reshape(shape)
    expected = core.jaxpr_as_fun(drawn)(array, jnp.zeros(1))
    for found, each in zip(core.jaxpr_as_fun(with_split_carries(drawn))(array, jnp.zeros(1)), expected, strict=True):
        np.testing.assert_array_equal(found, each)


def test_an_array_of_one_row_and_none_before_it() -> None:
    """As the line of a FIFO of depth 1: all but its first row, and the new one."""

    def body(line: Cache, x: jax.Array, at: Any) -> tuple[Cache, jax.Array]:
        return jnp.concatenate([line[1:], jnp.stack([x[0], x[1] * at])[None]]), x + 1

    check_same(loop(body), (jnp.zeros((1, 2)), jnp.ones(2)), splits=False)


def test_a_layer_that_is_not_updated_stays() -> None:
    def body(cache: Cache, x: jax.Array, at: Any) -> tuple[Cache, jax.Array]:
        keys, values, after = layer(cache[:, 1, 0], cache[:, 1, 1], x, at)
        layers = [cache[:, 0], jnp.stack((keys, values), 1), cache[:, 2]]
        return jnp.stack(layers, 1), after + cache[:, 0].sum((1, 2))

    parts = check_same(loop(body), example())
    assert joins_in_loops(parts.jaxpr) == 0


def whole(cache: Cache, x: jax.Array, at: Any) -> tuple[Cache, jax.Array]:
    after, x = as_kerashub(cache, x, at)
    return after, x + cache.sum()


def other_region(cache: Cache, x: jax.Array, at: Any) -> tuple[Cache, jax.Array]:
    after, x = as_kerashub(cache, x, at)
    return after, x + cache[:, 0, 0, 1:3].sum(1)


def every_second(cache: Cache, x: jax.Array, at: Any) -> tuple[Cache, jax.Array]:
    after, x = as_kerashub(cache, x, at)
    return after, x + cache[:, 0, 0, ::2].sum(1)


def one_part_twice(cache: Cache, x: jax.Array, at: Any) -> tuple[Cache, jax.Array]:
    keys, _, x = layer(cache[:, 0, 0], cache[:, 0, 1], x, at)
    return jnp.stack([jnp.stack((keys, keys), 1)] * LAYERS, 1), x


def rows_in_another_order(cache: Cache, x: jax.Array, at: Any) -> tuple[Cache, jax.Array]:
    after, x = as_kerashub(cache, x, at)
    return after[::-1], x


BODIES = [whole, other_region, every_second, one_part_twice, rows_in_another_order]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_what_reads_more_than_the_parts_stays_as_it_is(body: Body) -> None:
    check_same(loop(body), example(), splits=False)


def test_a_loop_in_loops_and_branches() -> None:
    def function(cache: Cache, x: jax.Array) -> Any:
        def turn(carry: Any, number: Any) -> Any:
            inside = loop(as_kerashub)
            ran = lax.cond(number > 0, lambda *given: inside(*given)[:2], lambda *given: given, *carry)
            return ran, ran[1].sum()

        (cache, x), sums = lax.scan(turn, (cache, x), jnp.arange(3))
        return cache, x, sums

    assert joins_in_loops(check_same(jax.jit(function), example()).jaxpr) == LAYERS + 1  # after the inner loop


def test_replicas_have_parts_of_their_own() -> None:
    replicas = tuple(jnp.stack([each, 2 * each, -each]) for each in example())
    split = check_same(jax.vmap(loop(as_kerashub)), replicas)
    assert joins_in_loops(split.jaxpr) == 0


def test_replicas_that_stop_one_after_the_other_stay_as_they_are() -> None:
    def function(cache: Cache, x: jax.Array, steps: Any) -> Any:
        return loop(as_kerashub, steps)(cache, x)

    replicas = *(jnp.stack([each, 2 * each]) for each in example()), jnp.array([2, 4])
    check_same(jax.vmap(function), replicas, splits=False)


def test_an_array_that_the_condition_reads_stays_as_it_is() -> None:
    def function(cache: Cache, x: jax.Array) -> Any:
        def step(state: Any) -> Any:
            return *as_kerashub(*state), state[2] + 1

        return lax.while_loop(lambda state: (state[0].sum() > -1e6) & (state[2] < 4), step, (cache, x, jnp.int32(0)))

    check_same(function, example(), splits=False)


def test_what_a_body_does_besides_is_done() -> None:
    seen: list[int] = []

    def function(cache: Cache, x: jax.Array) -> Any:
        def step(state: Any) -> Any:
            jax.debug.callback(lambda at: seen.append(int(at)), state[2], ordered=True)
            return *as_kerashub(*state), state[2] + 1

        return lax.while_loop(lambda state: state[2] < 3, step, (cache, x, jnp.int32(0)))

    split = with_split_carries(traced(function, *example()))
    jax.block_until_ready(jit(core.jaxpr_as_fun(split))(*example()))
    jax.effects_barrier()
    assert seen == [0, 1, 2]
    assert joins_in_loops(split.jaxpr) == 0
