"""Runs a program as several instances, without `poprun`: what each printed, and how it ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap

from tests.helpers.subprocess_cases import ROOT


def run_instances(
    program: str, count: int = 2, replicas: int = 0, timeout: float = 120, **surroundings: str
) -> list[subprocess.CompletedProcess[str]]:
    """Runs a Python program as so many instances, and waits for all of them.

    Args:
        program: its text; `INDEX` in it is the instance's index.
        count: how many instances.
        replicas: of all of them; one each by default.
        timeout: seconds after which they are killed, and an error is raised.
        surroundings: environment variables.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = f"import os\nINDEX = int(os.environ['POPDIST_INSTANCE_INDEX'])\n{textwrap.dedent(program)}"
    own = {
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "POPDIST_NUM_INSTANCES": str(count),
        "POPDIST_NUM_TOTAL_REPLICAS": str(replicas or count),
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-c", text],
            cwd=ROOT,
            env={**os.environ, **own, "POPDIST_INSTANCE_INDEX": str(index), **surroundings},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(count)
    ]
    try:
        outputs = [process.communicate(timeout=timeout) for process in started]
    finally:
        for process in started:
            process.kill()
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *output)
        for process, output in zip(started, outputs, strict=True)
    ]
