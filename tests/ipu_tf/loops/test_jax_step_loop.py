"""Steps written in JAX, looped on the device: state, updates, feeds, plans, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax import lax

import ipu_tf as ipu
from ipu_tf._loops.jax_feed import JaxFeed
from ipu_tf._loops.jax_step import AccumulationSettings, GradientUpdates, JaxStep
from ipu_tf._loops.step_loop import LoopOptions, StepLoop
from ipu_tf.emulation import EmulationError
from ipu_tf.lowering.jax.jaxpr_plans import planned
from tests.helpers.device_counts import device_work
from tests.helpers.library_jit import jit
from tests.helpers.some_ipus import ipus

WEIGHTS = jax.ShapeDtypeStruct((3,), np.dtype(np.float32))
X = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)


def elements() -> Iterator[np.ndarray]:
    return iter(X)


def sum_step(state: Any, x: Any, updates: GradientUpdates) -> tuple[Any, Any]:
    """Takes the gradient `x` off the weights at the state's rate, and counts updates."""

    def update(gradients: list[Any]) -> Any:
        return {**state, "w": state["w"] - state["rate"] * gradients[0], "updates": state["updates"] + 1}

    return {"x": x, "seen": state["updates"]}, updates.apply([x], update, state)


def start(rate: float) -> dict[str, jax.Array]:
    return {"w": jnp.zeros(3), "updates": jnp.int32(0), "rate": jnp.float32(rate)}


def run(rule: AccumulationSettings, steps: int, **arguments: Any) -> Any:
    state, feed = start(rate=0.5), JaxFeed(elements())
    loop = StepLoop(JaxStep(sum_step, state, feed.spec(), rule), LoopOptions(**arguments))
    return loop.run(state, feed, steps)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("reduction", ["SUM", "MEAN", "RUNNING_MEAN"])
def test_updates_see_every_micro_batch_and_replica(replicas: int, count: int, reduction: str) -> None:
    rule = AccumulationSettings(count, reduction, (WEIGHTS,) if count > 1 else (), replicas)
    steps = len(X) // replicas
    with ipus(replicas), device_work() as work:
        ran = run(rule, steps, all_outputs=True)
    share = 1 if reduction == "SUM" else count
    assert (ran.steps, ran.error) == (steps, None)
    assert (work.counts.executions, work.counts.steps, work.counts.programs) == (1, steps, 1)
    np.testing.assert_allclose(ran.state["w"].reshape(replicas, 3)[-1], -0.5 * X.sum(0) / share, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ran.state["updates"], np.full((replicas,) * (replicas > 1), steps // count))
    np.testing.assert_array_equal(ran.outputs["x"].reshape(-1, 3), X)
    assert ran.outputs["seen"].reshape(steps, -1)[-1, 0] == steps // count - 1


def test_accumulators_have_the_dtype_that_was_asked_for() -> None:
    with ipus(1):
        exact = run(AccumulationSettings(8, "SUM", (WEIGHTS,)), 24).state["w"]
        rounded = run(AccumulationSettings(8, "SUM", (jax.ShapeDtypeStruct((3,), jnp.bfloat16),)), 24).state["w"]
    assert 0 < np.abs(exact - rounded).max() < 0.1


def test_a_count_that_does_not_divide_the_steps_shows_the_line() -> None:
    with ipus(1), pytest.raises(tf.errors.FailedPreconditionError, match="8 number of mini batches inside") as raised:
        run(AccumulationSettings(8, "SUM", (WEIGHTS,)), 20)
    assert f'File "{__file__}", line' in str(raised.value)


def test_elements_that_run_out_and_the_state_that_was_given_up() -> None:
    state, feed = start(rate=1), JaxFeed(elements())
    with ipus(1):
        loop = StepLoop(JaxStep(sum_step, state, feed.spec()))
        first = loop.run(state, feed, 20)
        assert state["w"].is_deleted()
        second = loop.run(first.state, feed, 20)
        third = loop.run(second.state, feed, 20)
    assert (first.steps, second.steps, third.steps, third.outputs) == (20, 4, 0, None)
    np.testing.assert_allclose(third.state["w"], -X.sum(0), rtol=1e-5)


def test_a_source_that_fails_leaves_the_last_complete_step() -> None:
    def failing() -> Iterator[np.ndarray]:
        yield from X[:5]
        raise OSError("gone")

    state, feed = start(rate=1), JaxFeed(failing())
    with ipus(1):
        ran = StepLoop(JaxStep(sum_step, state, feed.spec())).run(state, feed, 8)
    assert isinstance(ran.error, OSError)
    assert ran.state["updates"] == 5


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_watched_run_hands_on_each_step(replicas: int) -> None:
    seen: list[Any] = []
    state, feed = start(rate=0.5), JaxFeed(elements())
    with ipus(replicas):
        step = JaxStep(sum_step, state, feed.spec(), AccumulationSettings(replicas=replicas))
        loop = StepLoop(step, LoopOptions(stepwise=True))
        ran = loop.run(state, feed, 12, seen.append)
        after = loop.run(ran.state, JaxFeed(elements()), 2)  # nobody watches now
    assert (ran.steps, ran.error, after.steps) == (12, None, 2)
    np.testing.assert_array_equal(np.stack([each["x"] for each in seen]).reshape(-1, 3), X[: 12 * replicas])
    np.testing.assert_array_equal(np.stack([each["seen"] for each in seen]).reshape(12, -1)[:, 0], np.arange(12))


def test_who_watches_and_fails_ends_the_run() -> None:
    def fail(outputs: Any) -> None:
        raise ArithmeticError(f"at {outputs['seen']}")

    state, feed = start(rate=0.5), JaxFeed(elements())
    with ipus(1):
        loop = StepLoop(JaxStep(sum_step, state, feed.spec()), LoopOptions(stepwise=True))
        ran = loop.run(state, feed, 24, fail)
    assert isinstance(ran.error, ArithmeticError)
    assert str(ran.error) == "at 0"
    assert 1 <= ran.state["updates"] == ran.steps <= 24
    np.testing.assert_allclose(ran.state["w"], -0.5 * X[: ran.steps].sum(0), rtol=1e-5)


def test_wide_elements_are_fed_as_narrow_ones_and_told() -> None:
    told: list[tuple[str, str]] = []
    feed = JaxFeed(iter([(np.zeros(2), None, np.int64(3))]), lambda *dtypes: told.append(dtypes))
    assert feed.spec() == (
        jax.ShapeDtypeStruct((2,), np.dtype(np.float32)),
        None,
        jax.ShapeDtypeStruct((), np.dtype(np.int32)),
    )
    assert told == [("float64", "float32"), ("int64", "int32")]


def test_the_users_precision_holds_within_a_step() -> None:
    """The device computes with 64 bits where a program has them; a step of JAX has none unless JAX is told to."""

    def step(state: Any, x: Any, updates: GradientUpdates) -> tuple[Any, Any]:
        return jnp.arange(3).sum() + jnp.argmax(x) + np.float64(0.5), state

    feed = JaxFeed(elements())
    with ipus(1):
        ran = StepLoop(JaxStep(step, (), feed.spec())).run((), feed, 2)
    assert ran.outputs.dtype == np.float32


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (lambda w: {"w": w}, "Expected a state of"),
        (lambda w: jnp.zeros(4), r"an array of shape \(3,\). Received for it: \(4,\)"),
    ],
)
def test_a_state_of_another_structure_is_refused(after: Callable[[Any], Any], text: str) -> None:
    feed = JaxFeed(elements())
    with ipus(1), pytest.raises(ValueError, match=text):
        StepLoop(JaxStep(lambda w, x, updates: ((), after(w)), jnp.zeros(3), feed.spec()))


def test_a_device_configured_anew_is_refused() -> None:
    feed = JaxFeed(elements())
    with ipus(1):
        loop = StepLoop(JaxStep(lambda w, x, updates: ((), w), jnp.zeros(3), feed.spec()))
    with ipus(2), pytest.raises(tf.errors.FailedPreconditionError, match="Make the loop again"):
        loop.run(jnp.zeros(3), feed, 1)


@pytest.mark.parametrize(("setting", "dtype"), [("oflo", np.float32), ("nanoo", np.float16), ("esr", np.float16)])
def test_floating_point_settings_that_nothing_models_are_refused(setting: str, dtype: Any) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    behaviour = config.floating_point_behaviour
    on = ipu.config.StochasticRoundingBehaviour.ON if setting == "esr" else True
    setattr(behaviour, setting, on)
    config.configure_ipu_system()
    feed = JaxFeed(elements())

    def make(kind: Any) -> StepLoop:
        return StepLoop(JaxStep(lambda w, x, updates: ((), w * 2), jnp.zeros(3, kind), feed.spec()))

    try:
        with pytest.raises(EmulationError, match=f"floating_point_behaviour.{setting}"):
            make(dtype)
        if dtype == np.float16:
            make(np.float32)  # where nothing is of half precision they change nothing
    finally:
        ipu.config.reset_ipu_configuration()


def _conv(x: Any, w: Any, layout: tuple[str, str, str] = ("NHWC", "HWIO", "NHWC"), **arguments: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout, **arguments)


def _pooled(x: Any, reducer: Any, start: float) -> Any:
    return lax.reduce_window(x, start, reducer, (1, 3, 2, 1), (1, 2, 2, 1), "VALID")


PLANNED: dict[str, Callable[[Any, Any], Any]] = {
    "convolution": lambda x, w: _conv(x, w),
    "channels first": lambda x, w: _conv(x.transpose(0, 3, 1, 2), w, ("NCHW", "HWIO", "NCHW")),
    "grouped": lambda x, w: _conv(x, w[:, :, :1], feature_group_count=2),
    "max pooling": lambda x, w: _pooled(x, lax.max, -np.inf) * w[0, 0, 0, 0],
    "min pooling": lambda x, w: _pooled(x, lax.min, np.inf) * w[0, 0, 0, 0],
    "sum pooling": lambda x, w: _pooled(x, lax.add, 0.0) * w[0, 0, 0, 0],
    "within calls": lambda x, w: jax.jit(lambda x, w: jax.nn.relu(_conv(x, w)))(x, w),
    "within a custom gradient": jax.custom_jvp(lambda x, w: _conv(x, w)),
    "nothing to plan": lambda x, w: jnp.einsum("nhwi,abio->no", x, w),
}
PLANNED["within a custom gradient"].defjvp(  # type: ignore[attr-defined]
    lambda primals, tangents: (_conv(*primals), _conv(tangents[0], primals[1]) + _conv(primals[0], tangents[1]))
)


@pytest.mark.parametrize("name", sorted(PLANNED))
def test_planned_functions_give_what_jax_gives(name: str) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(2, 7, 6, 2)).astype(np.float32), rng.normal(size=(3, 3, 2, 4)).astype(np.float32)

    def both(x: Any, w: Any) -> Any:
        y = PLANNED[name](x, w)
        return y, jax.grad(lambda *given: jnp.sum(PLANNED[name](*given) ** 2), (0, 1))(x, w)

    found = jit(planned(jax.make_jaxpr(both)(x, w)))(x, w)
    for mine, theirs in zip(found, jax.tree.leaves(jit(both)(x, w)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
