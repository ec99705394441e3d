"""The device alone: programs made by hand, without TensorFlow."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_tf.device.errors import ElementShapeError, InfeedExhausted, UnknownQueue
from ipu_tf.device.feeds import queues
from ipu_tf.device.feeds.infeed import Infeed
from ipu_tf.device.feeds.outfeed import Outfeed
from ipu_tf.device.feeds.staging import CHUNK_BYTES, CHUNK_STEPS, aligned_empty, chunk_capacity
from ipu_tf.device.memory.residency import SMALL, Residency
from ipu_tf.device.program.program import LoopPart, Program, StraightLinePart
from ipu_tf.device.run.executable import Executable

SCALAR = jax.ShapeDtypeStruct((), np.dtype(np.float32))
COUNT = jax.ShapeDtypeStruct((), np.dtype(np.int32))


def infeed_of(values: Any, name: str = "in") -> Infeed:
    """A started infeed of float32 scalars."""
    infeed = Infeed(name, (SCALAR,), lambda: ((np.float32(v) * np.ones((), np.float32),) for v in values))
    infeed.restart()
    queues.add_infeed(infeed)
    return infeed


def summing_program() -> Program:
    """(total, steps) -> total after `steps` elements of `in`, each total given to `out`."""

    def step(carry: Any, constants: Any, hidden: Any, elements: Any) -> Any:
        total = carry[0] + elements["in"][0]
        return (total, carry[1]), hidden, {"out": (total,)}

    loop = LoopPart(
        step=step,
        goes_on=lambda carry, constants: jnp.bool_(True),
        trip_count=lambda carry: int(carry[1]),
        carry_in=(0, 1),
        constants=(),
        carry_out=(2, None),
        infeeds={"in": (SCALAR,)},
        outfeeds={"out": (SCALAR,)},
    )
    return Program("summing", (SCALAR, COUNT), (loop,), (2,), {0: 0})


@pytest.fixture
def out() -> Iterator[Outfeed]:
    """The outfeed `out`; queues are dropped afterwards."""
    outfeed = Outfeed("out")
    queues.add_outfeed(outfeed)
    yield outfeed
    for name in ("in", "out"):
        queues.remove(name)


@pytest.mark.parametrize("steps", [0, 1, 7, 64, 2500])
def test_a_streamed_loop(out: Outfeed, steps: int) -> None:
    infeed_of(range(10_000))
    outcome = Executable(summing_program()).run([jnp.float32(1), np.int32(steps)])
    assert outcome.error is None and outcome.steps == steps
    assert float(outcome.results[0]) == 1 + sum(range(steps))
    elements = out.drain()
    assert (elements is None) == (steps == 0)
    if elements is not None:
        np.testing.assert_array_equal(elements[0], 1 + np.cumsum(np.arange(steps, dtype=np.float32)))


def test_a_failing_source_stops_after_complete_iterations(out: Outfeed) -> None:
    def values() -> Iterator[float]:
        yield from (1.0, 2.0, 3.0)
        raise OSError("the disk is gone")

    infeed_of(values())
    outcome = Executable(summing_program()).run([jnp.float32(0), np.int32(9)])
    assert isinstance(outcome.error, OSError)
    assert outcome.steps == 3 and float(outcome.results[0]) == 6.0
    assert len(out) == 3


def test_state_is_given_up_and_other_arrays_are_not(out: Outfeed) -> None:
    part = StraightLinePart(lambda live, hidden, elements: ((live[0] + live[1],), hidden, {}), (0, 1), (2,))
    program = Program("add", (SCALAR, SCALAR), (part,), (2,), {0: 0})
    state, other = jnp.float32(1), jnp.float32(2)
    (result,) = Executable(program).run([state, other]).results
    assert float(result) == 3.0
    assert state.is_deleted() and not other.is_deleted()


def test_the_same_array_twice_is_not_given_up_twice() -> None:
    part = StraightLinePart(lambda live, hidden, elements: ((live[0] + 1, live[1] + 2), hidden, {}), (0, 1), (2, 3))
    program = Program("twice", (SCALAR, SCALAR), (part,), (2, 3), {0: 0, 1: 1})
    array = jnp.float32(1)
    first, second = Executable(program).run([array, array]).results
    assert (float(first), float(second)) == (2.0, 3.0)


def test_an_unknown_queue() -> None:
    with pytest.raises(UnknownQueue, match="outfeed 'out'"):
        Executable(summing_program()).run([jnp.float32(0), np.int32(1)])


def test_an_infeed_gives_each_element_once_and_takes_back() -> None:
    infeed = infeed_of(range(5))
    buffers = (aligned_empty((4,), np.dtype(np.float32)),)
    staged = infeed.fill(buffers, 4)
    assert staged.count == 4 and infeed.taken == 4
    infeed.return_elements(staged, 1)
    assert [float(infeed.next()[0]) for _ in range(4)] == [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(InfeedExhausted, match="after 5 elements"):
        infeed.next()
    infeed.restart()
    assert float(infeed.next()[0]) == 0.0
    queues.remove("in")


def test_an_element_of_another_shape() -> None:
    infeed = Infeed("shapes", (SCALAR,), lambda: iter([(np.zeros((), np.float32),), (np.zeros(1, np.float32),)]))
    infeed.next()
    with pytest.raises(ElementShapeError, match=r"must have the shape \(\).*Received: shape \(1,\)"):
        infeed.next()


@given(size=st.integers(0, 1 << 28), wanted=st.none() | st.integers(0, 10**9))
def test_chunks_are_bounded_and_shared_by_lengths(size: int, wanted: int | None) -> None:
    capacity = chunk_capacity(size, wanted)
    assert 1 <= capacity <= CHUNK_STEPS and capacity & (capacity - 1) == 0
    assert capacity == 1 or capacity * size <= CHUNK_BYTES
    assert wanted is None or capacity < 2 * max(1, wanted)


class FakeVariable:
    """A host variable whose writes go to new memory."""

    def __init__(self, value: float, size: int = 3) -> None:
        self.array = np.full((size,), value, np.float32)
        self.writes = 0

    @staticmethod
    def snapshots(variables: Sequence[FakeVariable]) -> list[tuple[np.ndarray, Any]]:
        return [(variable.array, variable.array) for variable in variables]

    def share(self) -> None:
        """Snapshots are no copies."""

    @staticmethod
    def write_all(variables: Sequence[FakeVariable], values: Sequence[np.ndarray]) -> None:
        for variable, value in zip(variables, values, strict=True):
            variable.write(value)

    def write(self, value: np.ndarray) -> None:
        self.array, self.writes = np.array(value), self.writes + 1


def test_residency_uploads_once_and_writes_back_on_flush() -> None:
    residency, variable = Residency(), FakeVariable(1.0)
    buffer = residency.acquire_all([variable])[0]
    assert residency.acquire_all([variable])[0] is buffer
    residency.commit([variable], [buffer + 1])
    assert variable.array[0] == 1.0
    residency.flush()
    residency.flush()
    assert variable.array[0] == 2.0 and variable.writes == 1
    assert float(residency.acquire_all([variable])[0][0]) == 2.0


def test_a_write_of_the_host_wins_over_an_older_value_of_the_device() -> None:
    residency, variable = Residency(), FakeVariable(1.0)
    residency.commit([variable], [residency.acquire_all([variable])[0] + 1])
    variable.write(np.full((3,), 9, np.float32))
    residency.flush()
    assert variable.array[0] == 9.0
    assert float(residency.acquire_all([variable])[0][0]) == 9.0


def test_the_hosts_memory_is_never_given_up() -> None:
    residency, variable = Residency(), FakeVariable(1.0)
    double = jax.jit(lambda x: x * 2, donate_argnums=0)
    residency.commit([variable], [double(residency.acquire_all([variable])[0])])
    assert variable.array[0] == 1.0


def test_the_first_execution_changes_a_large_variable_in_place() -> None:
    residency, variable = Residency(), FakeVariable(1.0, SMALL)
    given = residency.acquire_all([variable])[0]
    place = given.unsafe_buffer_pointer()
    result = jax.jit(lambda x: x * 2, donate_argnums=0)(given)
    assert result.unsafe_buffer_pointer() == place
    assert (variable.array[0], float(result[0])) == (1.0, 2.0)


def test_large_variables_drop_what_they_had_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipu_tf.device.memory.residency._PORTION", 1)
    residency, variables = Residency(), [FakeVariable(1.0, SMALL) for _ in range(3)]
    for variable, buffer in zip(variables, residency.acquire_all(variables), strict=True):
        residency.commit([variable], [buffer + 1])
    had = [weakref.ref(variable.array) for variable in variables]
    alive: list[int] = []
    write = FakeVariable.write

    def counted(variable: FakeVariable, value: np.ndarray) -> None:
        alive.append(sum(each() is not None for each in had))
        write(variable, value)

    monkeypatch.setattr(FakeVariable, "write", counted)
    residency.flush()
    assert alive == [3, 2, 1]


def test_variables_that_are_gone_leave_no_buffers() -> None:
    residency, variable = Residency(), FakeVariable(1.0)
    residency.acquire_all([variable])[0]
    del variable
    gc.collect()
    assert len(residency) == 0


def test_recovery_keeps_what_is_left_and_never_half_of_it() -> None:
    residency, left, right = Residency(), FakeVariable(1.0), FakeVariable(5.0)
    for variable in (left, right):
        residency.commit([variable], [residency.acquire_all([variable])[0] + 1])
    residency.recover([left, right])
    assert (left.array[0], right.array[0]) == (2.0, 6.0)
    for variable in (left, right):
        residency.commit([variable], [residency.acquire_all([variable])[0] + 1])
    residency.acquire_all([left])[0].delete()
    residency.recover([left, right])
    assert (left.array[0], right.array[0]) == (2.0, 6.0)
    assert float(residency.acquire_all([right])[0][0]) == 6.0
