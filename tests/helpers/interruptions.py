"""Ctrl-C at random moments: of compiling, of a loop, of a pipeline, of a loop without feeds.

`python -m tests.helpers.interruptions --count 50` presses it fifty times in all and prints how long each run took to
end. It fails where a model does not train on afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ipu_tf.device.run.interrupts import Interrupts
from tests.helpers.sigint import press_ctrl_c
from tests.helpers.some_ipus import ipus

X, Y = np.ones((64, 16), np.float32), np.ones((64, 1), np.float32)


@dataclasses.dataclass(frozen=True)
class Interruption:
    """One Ctrl-C.

    Attributes:
        kind: of the run.
        moment: seconds after its start.
        seconds: how long the run went on.
        usable: whether a run afterwards did its work.
    """

    kind: str
    moment: float
    seconds: float
    usable: bool


def model(strategy: Any, pipelined: bool = False, steps: int = 64) -> Any:
    """A small model; where pipelined, of two stages and accumulation."""
    with strategy.scope():
        made = keras.Sequential([keras.Input((16,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
        if pipelined:
            made.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
            made.set_pipeline_stage_assignment([0, 1])
        made.compile("sgd", "mse", steps_per_execution=steps)
    return made


def fitting(made: Any) -> Callable[[bool], None]:
    """Training, endless or of two epochs."""
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8, drop_remainder=True).repeat()

    def run(endless: bool) -> None:
        made.fit(data, epochs=10**6 if endless else 2, steps_per_epoch=64, shuffle=False, verbose=0)
        assert all(np.isfinite(weight).all() for weight in made.get_weights())

    return run


def looping(strategy: Any) -> Callable[[bool], None]:
    """A loop without feeds that goes on until a limit."""

    @tf.function
    def loop(limit: Any) -> Any:
        x = tf.zeros(())
        while x < limit:
            x = tf.minimum(x + 1.0, 1e6)
        return x

    def run(endless: bool) -> None:
        assert float(strategy.run(loop, [tf.constant(1e7 if endless else 100.0)])) == 100.0

    return run


def compiling(strategy: Any) -> Callable[[bool], None]:
    """New models, one after the other."""

    def run(endless: bool) -> None:
        while True:
            fitting(model(strategy))(False)
            if not endless:
                return

    return run


def in_a_call() -> bool:
    """Returns whether a call runs that Ctrl-C ends. Between calls it may be lost in a callback of JAX."""
    return isinstance(getattr(signal.getsignal(signal.SIGINT), "__self__", None), Interrupts)


def interrupted(kind: str, run: Callable[[bool], None], moment: float) -> Interruption:
    """Presses Ctrl-C in the first call of an endless run after some seconds, then runs again."""
    pressed: list[float] = []

    def press() -> None:
        while not in_a_call():
            time.sleep(0.0001)
        pressed.append(time.monotonic())
        press_ctrl_c()

    timer = threading.Timer(moment, press)
    timer.daemon = True
    timer.start()
    with contextlib.suppress(KeyboardInterrupt):
        run(True)
    ended = time.monotonic()
    timer.join()
    run(False)
    return Interruption(kind, moment, ended - pressed[0], True)


def interruptions(count: int, seed: int = 0) -> list[Interruption]:
    """Presses Ctrl-C so many times, taking turns between the kinds of runs, at random moments of up to two seconds."""
    rng = random.Random(seed)
    found = []
    makers: dict[str, Callable[[Any], Callable[[bool], None]]] = {
        "loop": lambda strategy: fitting(model(strategy)),
        "feedless loop": looping,
        "pipeline": lambda strategy: fitting(model(strategy, pipelined=True)),
        "compile": compiling,
    }
    for number in range(count):
        kind = list(makers)[number % len(makers)]
        with ipus(2 if kind == "pipeline" else 1) as strategy:
            run = makers[kind](strategy)
            if kind != "compile":
                run(False)
            found.append(interrupted(kind, run, rng.uniform(0.0, 2.0)))
    return found


def main() -> int:
    """Exit code 1 if a run took more than two seconds to end."""
    parser = argparse.ArgumentParser(prog="python -m tests.helpers.interruptions", description=__doc__)
    parser.add_argument("--count", type=int, default=50, help="how often Ctrl-C is pressed (50)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (0)")
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    found = interruptions(chosen.count, chosen.seed)
    for one in sorted(found, key=lambda each: -each.seconds)[:10]:
        print(f"{one.kind}: after {one.moment:.2f} s, ended in {one.seconds:.2f} s", flush=True)
    late = sum(one.seconds > 2 for one in found)
    print(f"{len(found)} interruptions, {late} took more than 2 s; every model trained on.")
    return int(late > 0)


if __name__ == "__main__":
    sys.exit(main())
