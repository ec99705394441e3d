"""Errors of data that a program read ahead and did not come to: they are raised where the next one comes to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ipu_tf.device.errors import InfeedExhausted
from ipu_tf.device.feeds.execution_queues import ExecutionQueues
from ipu_tf.device.feeds.infeed import Infeed
from ipu_tf.device.feeds.stager import Stager
from ipu_tf.device.program.program import LoopPart, Program
from ipu_tf.device.program.replicas import Replicas
from ipu_tf.device.run.executable import Executable

SCALAR = jax.ShapeDtypeStruct((), np.dtype(np.float32))
COUNT = jax.ShapeDtypeStruct((), np.dtype(np.int32))


def failing_after(count: int, name: str = "in") -> Infeed:
    """An infeed of 0., 1., ... whose source fails after so many."""

    def elements() -> Iterator[tuple[np.ndarray, ...]]:
        for number in range(count):
            yield (np.asarray(number, np.float32),)
        raise OSError(f"the disk of {name} is gone")

    return Infeed(name, (SCALAR,), elements)


def loop_over(*names: str, counted: bool = False) -> LoopPart:
    """(total, iterations left): adds the elements of the infeeds; the device counts unless the host does."""
    return LoopPart(
        step=lambda carry, constants, hidden, elements: (
            (carry[0] + sum(elements[name][0] for name in names), carry[1] - (0 if counted else 1)),
            hidden,
            {},
        ),
        goes_on=lambda carry, constants: carry[1] > 0,
        trip_count=(lambda carry: int(carry[1])) if counted else None,
        carry_in=(0, 1),
        constants=(),
        carry_out=(2, None),
        infeeds=dict.fromkeys(names, (SCALAR,)),
    )


def test_a_loop_that_ends_before_it_leaves_it_to_the_next() -> None:
    infeed = failing_after(5)
    program = Program("summing", (SCALAR, COUNT), (loop_over("in"),), (2,), {0: 0})
    executable, queues = Executable(program), ExecutionQueues({"in": infeed})

    def run(steps: int) -> Any:
        return executable.run([jnp.float32(0), np.int32(steps)], queues)

    run(0)  # compiles: chunks have several iterations from here on
    first = [run(1) for _ in range(3)]
    assert [(ran.steps, ran.error) for ran in first] == [(1, None)] * 3
    last = run(10)
    assert (last.steps, float(last.results[0])) == (2, 3 + 4)
    with pytest.raises(OSError, match="the disk of in is gone"):
        raise last.error
    assert isinstance(run(1).error, InfeedExhausted)  # it is raised once


@pytest.mark.parametrize("good", [0, 3])
def test_what_is_staged_ahead_keeps_it(good: int) -> None:
    infeed = failing_after(1 + good)
    buffers = Stager.make_buffers(loop_over("in"), 8, Replicas())
    with Stager({"in": infeed}, 8, buffers) as stager:
        chunk = stager.take(1)
        stager.stage_ahead(8)
        stager.return_unused(chunk, 0)
    assert [float(infeed.next()[0]) for _ in range(1 + good)] == list(range(1 + good))
    with pytest.raises(OSError, match="the disk of in is gone"):
        infeed.next()
    assert infeed.taken == 1 + good


def test_that_of_the_infeed_which_ends_first_is_raised() -> None:
    infeeds = {name: failing_after(count, name) for name, count in (("long", 6), ("short", 4))}
    buffers = Stager.make_buffers(loop_over(*infeeds), 8, Replicas())
    with Stager(infeeds, 8, buffers) as stager:
        chunk = stager.take(8)
    assert chunk.count == 4
    with pytest.raises(OSError, match="the disk of short is gone"):
        raise chunk.error or AssertionError
    assert [float(infeeds["long"].next()[0]) for _ in range(2)] == [4, 5]
    with pytest.raises(OSError, match="the disk of long is gone"):
        infeeds["long"].next()


def test_replicas_that_lack_elements_for_a_step_give_them_back_before_it() -> None:
    infeed = failing_after(5)
    buffers = Stager.make_buffers(loop_over("in"), 8, Replicas(2))
    with Stager({"in": infeed}, 8, buffers) as stager:
        chunk = stager.take(8)
        assert chunk.count == 2
        stager.return_unused(chunk, 1)
    assert [float(infeed.next()[0]) for _ in range(3)] == [2, 3, 4]
    with pytest.raises(OSError, match="the disk of in is gone"):
        infeed.next()


def test_a_program_that_does_not_compile_uses_no_element() -> None:
    infeed, part = failing_after(3), loop_over("in", counted=True)

    def step(*given: Any) -> Any:
        raise NotImplementedError("no such op")

    program = Program("failing", (SCALAR, COUNT), (dataclasses.replace(part, step=step),), (2,), {0: 0})
    with pytest.raises(NotImplementedError, match="no such op"):
        Executable(program).run([jnp.float32(0), np.int32(3)], ExecutionQueues({"in": infeed}))
    assert infeed.taken == 0
    assert float(infeed.next()[0]) == 0
