"""Kills, stops or ends one of two instances of a training run at random moments, under `poprun`.

`python -m tests.helpers.instance_kills --kills 50` says how long the others took to end. It fails where one of them
does not end in time or a process is left, where an instance's newest checkpoint cannot be read, and where a run that
was killed and resumed, as often as it takes, does not end with the bits of one that was not.

One kill in four is of all at once, by that of `poprun`; three in four are at a moment after the first step of the run.
Moments are chosen by how long an undisturbed run took. A run that is faster, and ends before, is followed by another.

`--stops` stops an instance by SIGSTOP in place of SIGKILL; `--exits` has one end in the middle without an error.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.helpers.subprocess_cases import ROOT

POPRUN = (sys.executable, "-c", "from ipu_tf._poprun.command_line import main; main()")
INSTANCES, EPOCHS = 2, 6
TIMEOUT = 20
"""Seconds of IPU_TF_INSTANCE_TIMEOUT."""
IN_TIME = {"kill": 15.0, "kill all": 15.0, "exit": 60.0, "stop": 60.0}
"""Seconds in which all have to end: 10 of poprun's grace after 20 without a sign of life, or 30 left alone."""


def train(folder: str, result: str, ends: bool) -> None:
    """Trains a small model with a checkpoint each step, in one instance, and writes a checksum of what came of it."""
    import keras
    import numpy as np
    import tensorflow as tf

    import ipu_tf as ipu
    import keras_ipu
    from ipu_tf import popdist
    from ipu_tf.distributed.popdist_strategy import PopDistStrategy
    from ipu_tf.popdist.tensorflow import set_ipu_config

    class End(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            time.sleep(0.02)
            with contextlib.suppress(FileExistsError):
                Path(f"{result}.started").touch(exist_ok=False)
            if ends and popdist.getInstanceIndex() == 1 and batch == 3:
                Path(f"{result}.exits").touch()
                sys.exit(0)

    popdist.init()
    keras.utils.set_random_seed(5)
    set_ipu_config(ipu.config.IPUConfig()).configure_ipu_system()
    x = np.random.default_rng(3).normal(size=(96, 6)).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True)))
    data = data.shard(popdist.getNumInstances(), popdist.getInstanceIndex())
    data = data.shuffle(48, seed=popdist.getInstanceIndex()).batch(4, drop_remainder=True)
    with PopDistStrategy().scope():
        layers = [keras.layers.Dense(16), keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)]
        model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
        callbacks = [End(), keras_ipu.callbacks.ExactResume(folder, every=1)]
        history = model.fit(data, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=callbacks).history
    bits = b"".join(weight.tobytes() for weight in model.get_weights()) + repr(history).encode()
    Path(f"{result}.{popdist.getInstanceIndex()}").write_text(hashlib.sha256(bits).hexdigest())


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a run ended.

    Attributes:
        code: poprun's exit code.
        seconds: from the start.
        after: seconds from what was done to an instance; None where it ended before.
        said: what was printed.
        seconds_of_steps: from the end of the first step to that of the training in all instances; 0.0 without it.
    """

    code: int
    seconds: float
    after: float | None
    said: str
    seconds_of_steps: float


def run(folder: Path, result: Path, what: str = "", at: float = 0.0, instance: int = 0, early: bool = False) -> Ended:
    """Runs the training under `poprun`; does something to an instance after so many seconds.

    Args:
        folder: of the checkpoints.
        result: where each instance writes what came of it.
        what: "kill", "kill all", "stop", "exit", or nothing.
        at: the seconds, from the first step on.
        instance: which one.
        early: whether the seconds are from the start.
    """
    call = f"from tests.helpers.instance_kills import train; train({str(folder)!r}, {str(result)!r}, {what == 'exit'})"
    command = [*POPRUN, "--num-instances", str(INSTANCES), "--num-replicas", str(2 * INSTANCES)]
    surroundings = {**os.environ, "IPU_TF_INSTANCE_TIMEOUT": "60" if what != "stop" else str(TIMEOUT)}
    began, done, started = time.monotonic(), None, Path(f"{result}.started")
    started.unlink(missing_ok=True)
    with tempfile.TemporaryFile("w+") as output:
        running = subprocess.Popen(
            [*command, sys.executable, "-c", call], cwd=ROOT, env=surroundings, stdout=output, stderr=output
        )
        groups: list[int] = []
        while running.poll() is None:
            groups = groups if len(groups) == INSTANCES else children(running.pid)
            since = started.stat().st_mtime - time.time() + time.monotonic() if started.exists() else float("inf")
            due = time.monotonic() > (began if early else since) + at
            if what in ("kill", "kill all", "stop") and done is None and len(groups) == INSTANCES and due:
                killed = running.pid if what == "kill all" else groups[instance]  # Linux kills what `poprun` started
                with contextlib.suppress(ProcessLookupError):  # it has ended just now: nothing was killed
                    os.kill(killed, signal.SIGSTOP if what == "stop" else signal.SIGKILL)
                    done = time.monotonic()
            if what == "exit" and done is None and Path(f"{result}.exits").exists():
                done = time.monotonic()
            if done is not None and time.monotonic() > done + IN_TIME[what]:
                running.kill()  # Linux ends the instances with it
                raise AssertionError(f"{what} at {at}: an instance goes on")
            time.sleep(0.01)
        ended, until = time.monotonic(), time.monotonic() + (IN_TIME[what] if what == "kill all" else 0.0)
        while (left := [group for group in groups if alive(group)]) and time.monotonic() < until:
            ended = time.monotonic()
        output.seek(0)
        said = output.read()
    assert not left, f"{what} at {at}: processes of the groups {left} are left\n{said}"
    stepped = written(result) - started.stat().st_mtime if started.exists() and results(result) else 0.0
    return Ended(running.returncode, ended - began, None if done is None else ended - done, said, stepped)


def children(process: int) -> list[int]:
    """Returns the processes that a process started, the first first."""
    try:
        return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def alive(group: int) -> bool:
    """Returns whether a process group has a process that runs."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(of) == group and state != "Z":
            return True
    return False


def results(result: Path) -> list[str]:
    """Returns what came of a run, by instance; nothing if it has not ended."""
    paths = [Path(f"{result}.{index}") for index in range(INSTANCES)]
    return [path.read_text() for path in paths] if all(path.exists() for path in paths) else []


def written(result: Path) -> float:
    """Returns when the last instance wrote what came of a run."""
    return max(Path(f"{result}.{index}").stat().st_mtime for index in range(INSTANCES))


def checkpoints(folder: Path) -> list[int]:
    """Returns how many checkpoints each instance has; fails where its newest one cannot be read."""
    from tests.helpers.resume_kills import readable

    return [readable(each) for each in sorted(folder.glob("instance-*"))]


def killed(count: int, rng: random.Random, root: Path, before_steps: float) -> list[float]:
    """Kills so many times; returns the seconds that the others took to end.

    Kills that come when the training has ended are checked, and do not count: on a loaded machine a run may be faster
    than the one that the moments are chosen by.
    """
    whole = run(root / "whole", root / "wanted")
    assert whole.code == 0, whole.said
    wanted, seconds, runs = results(root / "wanted"), list[float](), 0
    trained = whole.seconds_of_steps
    while len(seconds) < count:
        runs += 1
        folder, result = root / f"run {runs}", root / f"result {runs}"
        while not results(result):
            early, instance = rng.random() < before_steps, rng.randrange(INSTANCES)
            what = "" if len(seconds) == count else "kill all" if rng.random() < 0.25 else "kill"
            at = rng.uniform(0.0, whole.seconds if early else trained)
            ended = run(folder, result, what, at, instance, early)
            assert ended.code in (0, 137, -signal.SIGKILL), ended.said
            if ended.code:
                assert what == "kill all" or f"instance {instance} was ended by signal 9" in ended.said, ended.said
                if results(result):  # it came after the training: nothing is left to resume
                    continue
                seconds.append(ended.after or 0.0)
                victim, since = "all" if what == "kill all" else f"instance {instance}", "start" if early else "step"
                told = f"{len(seconds)}: {victim} {at:.2f} s after the first {since}, ended {seconds[-1]:.2f} s later"
                print(f"{told}, checkpoints {checkpoints(folder)}", flush=True)
        assert results(result) == wanted, f"run {runs} ended with other bits"
    print(f"{count} kills in {runs} runs, each resumed to the same bits; ended within {max(seconds):.1f} s")
    return seconds


def left_waiting(what: str, count: int, rng: random.Random, root: Path) -> None:
    """Stops an instance, or ends instance 1, so many times; checks that the other ends and says for whom it waited."""
    for number in range(count):
        instance, at = number % INSTANCES if what == "stop" else 1, rng.uniform(0.0, 0.4)
        ended = run(root / f"{what} {number}", root / f"{what} result {number}", what, at, instance)
        assert ended.code not in (0, None), ended.said
        lines = [
            line for line in ended.said.splitlines() if f"for instance {instance}" in line or "lost another" in line
        ]
        assert lines and f"instance {instance}" in lines[0], ended.said
        print(f"{what}: code {ended.code} after {ended.after:.1f} s: {lines[0]}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.helpers.instance_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="instances to kill (50)")
    parser.add_argument("--stops", type=int, default=0, help="instances to stop (0)")
    parser.add_argument("--exits", type=int, default=0, help="instances that end early (0)")
    parser.add_argument("--early", type=float, default=0.25, help="share of kills from the start on, not a step (0.25)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (0)")
    chosen = parser.parse_args()
    rng = random.Random(chosen.seed)
    with tempfile.TemporaryDirectory() as root:
        if chosen.kills:
            killed(chosen.kills, rng, Path(root), chosen.early)
        left_waiting("stop", chosen.stops, rng, Path(root))
        left_waiting("exit", chosen.exits, rng, Path(root))
    return 0


if __name__ == "__main__":
    sys.exit(main())
