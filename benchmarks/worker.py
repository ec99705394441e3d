"""Worker process of a contender: prepares, then runs a round for each line it reads and prints the result.

standard input    a line for each round; its end ends the process
standard output   a line of JSON after getting ready and after each round: {"seconds": s, "loss": l}
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import IO, Any

from benchmarks.contenders import CONTENDERS, Contender
from benchmarks.workload import WORKLOADS, Workload


class Worker:
    """Parent's handle of a contender's process.

    Args:
        contender: who runs there.
        workload: what it goes through.
        task: "train", "evaluate" or "predict".
        log: takes the process's standard error.
        environment: variables of the process, beside those of this one.
    """

    def __init__(
        self, contender: Contender, workload: Workload, task: str, log: IO[str], environment: Mapping[str, str] = {}
    ) -> None:
        self.contender = contender
        self.steps = contender.steps(workload)
        self._log = log
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", contender.name, task, *told(workload)],
            env={**os.environ, "KERAS_BACKEND": contender.backend, "TF_CPP_MIN_LOG_LEVEL": "2", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )

    def ready(self) -> float:
        """Waits until the process has compiled and warmed up; returns the seconds that it took there."""
        return self._answer()

    def round(self) -> float:
        """Runs a round; returns seconds per step."""
        assert self._process.stdin is not None
        self._process.stdin.write("round\n")
        self._process.stdin.flush()
        return self._answer() / self.steps

    def close(self) -> None:
        """Terminates the process."""
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"{self.contender.title} failed:\n{self._log.read()[-4000:]}")
        answer: dict[str, float] = json.loads(line)
        if not math.isfinite(answer["loss"]):
            raise RuntimeError(f"{self.contender.title} reached a loss of {answer['loss']}: nothing to compare with")
        return answer["seconds"]


def told(workload: Workload) -> tuple[str, ...]:
    """Serialises a workload for another process."""
    return (workload.name, str(workload.steps), workload.data)


def understood(name: str, steps: str, data: str) -> Workload:
    """Parses the workload serialised by `told`."""
    return dataclasses.replace(WORKLOADS[name].with_steps(int(steps)), data=data)


def serve(contender: Contender, workload: Workload, task: str, answers: IO[str]) -> None:
    """Prepares the contender, then runs a round for each line of standard input."""
    run: Any = None

    def timed(action: Any) -> None:
        start = time.perf_counter()
        loss = action()
        print(json.dumps({"seconds": time.perf_counter() - start, "loss": loss}), file=answers, flush=True)

    def warmed_up() -> float:
        nonlocal run
        run = contender.prepare(workload, task)
        run()
        return run()

    timed(warmed_up)
    for _ in sys.stdin:
        timed(run)


def main() -> None:
    """Reads contender and workload from the command line."""
    contender, task, *workload = sys.argv[1:]
    # What libraries print must not come between the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    serve(CONTENDERS[contender], understood(*workload), task, answers)


if __name__ == "__main__":
    main()
