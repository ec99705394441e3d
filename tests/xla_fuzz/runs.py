"""Runs fuzzed programs on the device, several of them as one program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._loops.jax_feed import JaxFeed
from ipu_tf._loops.jax_step import GradientUpdates, JaxStep
from ipu_tf._loops.step_loop import StepLoop
from tests.helpers.some_ipus import ipus
from tests.xla_fuzz.cases import Case
from tests.xla_fuzz.jax_ops import JaxOps
from tests.xla_fuzz.jobs import WAYS
from tests.xla_fuzz.tensorflow_ops import TensorFlowOps

_STEPS = 2
"""Iterations of a loop; the results are the last one's."""


def tensorflow_straight(cases: Sequence[Case]) -> list[np.ndarray]:
    """The results of `strategy.run` of a function that computes all of them."""
    with ipus(1) as strategy:
        inputs = [[tf.constant(array) for array in case.inputs] for case in cases]
        results = strategy.run(tf.function(lambda given: _all(TensorFlowOps(), cases, given)), [inputs])
        return [np.asarray(result) for result in results]


def tensorflow_loop(cases: Sequence[Case]) -> list[np.ndarray]:
    """The same, computed in a loop whose elements come from an infeed."""
    flat = tuple(array for case in cases for array in case.inputs)
    with ipus(1) as strategy:
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(flat).repeat())
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST)

        def body(*elements: Any) -> Any:
            return outfeed.enqueue(tuple(_all(TensorFlowOps(), cases, _shared_out(cases, elements))))

        def program() -> None:
            ipu.loops.repeat(_STEPS, body, [], infeed)

        strategy.run(tf.function(program, autograph=False))
        rows = [np.asarray(result) for result in outfeed.dequeue()]
        infeed.deleter  # noqa: B018 - an attribute that deletes
        return rows


def jax_loop(cases: Sequence[Case]) -> list[np.ndarray]:
    """The same, as Keras on JAX runs its steps."""

    def step(state: Any, element: Any, updates: GradientUpdates) -> tuple[Any, Any]:
        return _all(JaxOps(), cases, element), state

    inputs = [list(case.inputs) for case in cases]
    with ipus(1):
        feed = JaxFeed(iter([inputs] * _STEPS))
        ran = StepLoop(JaxStep(step, (), feed.spec())).run((), feed, _STEPS).raise_for_error()
    return [np.asarray(array) for array in ran.outputs]


_RUNS = dict(zip(WAYS, (tensorflow_straight, tensorflow_loop, jax_loop), strict=True))


def results_of(cases: Sequence[Case], way: str) -> list[np.ndarray]:
    """The results of cases, run one of `WAYS`."""
    return _RUNS[way](cases)


def runs_on(case: Case, way: str) -> bool:
    """Whether a case can go this way: JAX's feeds have 32 bits, as Keras's."""
    return not (way == "jax loop" and case.dtype.itemsize == 8)


def _all(ops: Any, cases: Sequence[Case], inputs: Any) -> list[Any]:
    return [case.program(ops, given) for case, given in zip(cases, inputs, strict=True)]


def _shared_out(cases: Sequence[Case], elements: Sequence[Any]) -> Iterator[list[Any]]:
    """Yields the data of each case."""
    left = iter(elements)
    for case in cases:
        yield [next(left) for _ in case.inputs]


def forget() -> None:
    """Drops compiled code, of which a long campaign makes gigabytes."""
    jax.clear_caches()
    tf.keras.backend.clear_session()
