"""Runs of an application: under the launcher, or in stock TensorFlow."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.helpers.graphcore_applications.application import NOTEBOOK, Application
from tests.helpers.graphcore_applications.stand_ins import STAND_INS

ROOT = Path(__file__).resolve().parents[3]
#: Run before an application that is compared.
SAME_ON_BOTH = Path(__file__).with_name("same_on_both.py")
#: Runs an application without this project.
STOCK = Path(__file__).parent / "stock" / "launch.py"


@dataclasses.dataclass(frozen=True)
class Done:
    """What a run of an application gave.

    Attributes:
        whole: whether it ran to its end.
        losses: those that it printed.
        text: its output.
    """

    whole: bool
    losses: tuple[float, ...]
    text: str

    def result(self) -> str:
        """Returns what the table says of it."""
        if not self.whole:
            errors = re.findall(r"(?m)^(\w*(?:Error|Exception): .*)", self.text)
            return f"stops: {errors[-1] if errors else 'without an error'}"
        counts = (re.findall(r"(?m)^ipu_tf: (\d+ programs? compiled.*)", self.text) or ["no IPU"])[-1]
        falls = f"; loss {self.losses[0]:.4f} to {self.losses[-1]:.4f}" if self.losses else ""
        return f"runs to its end{falls}; {counts}"


def run(checkout: Path, application: Application, stock: bool | None = None) -> Done:
    """Runs an application in a copy of its folder.

    Args:
        checkout: of Graphcore's repository.
        application: what to run.
        stock: with None under the launcher. To compare: True in stock TensorFlow, False under the launcher with the
            same seeds, and losses that are printed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "application"
        shutil.copytree(checkout / application.folder, folder)
        arguments = _arguments(folder, application)
        environment = environment_of(Path(scratch), application, stock)
        launcher = [str(STOCK)] if stock else _launcher(Path(scratch), application, stock)
        command = [sys.executable, *launcher, *arguments]
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    output = ran.stdout + ran.stderr
    pattern = application.loss if stock is None else application.compared_loss
    losses = tuple(map(float, re.findall(pattern, output))) if pattern else ()
    says = "stock: to its end" if stock else application.says
    return Done(ran.returncode == 0 and says in output, losses, output)


def _arguments(folder: Path, application: Application) -> list[str]:
    """Makes a copy of an application ready; returns its script and arguments."""
    arguments = shlex.split(f"{application.command} {application.sizes}")
    if application.command.endswith(".ipynb"):
        _notebook(folder / application.command)
        arguments = [NOTEBOOK]
    if application.data:
        subprocess.run([sys.executable, "-c", application.data], cwd=folder, check=True)
    for file, pairs in application.changes.items():
        _change(folder / file, pairs)
    return arguments


def environment_of(scratch: Path, application: Application, stock: bool | None) -> dict[str, str]:
    """Returns the variables that an application runs with; its stand-ins are written to a folder."""
    stand_ins = scratch / "stand_ins"
    stand_ins.mkdir()
    for file, text in STAND_INS.items():
        name = file.removesuffix(".py")
        # A folder without `__init__.py` yields to a module, wherever that lies.
        if importlib.util.find_spec(name) is None and not (scratch / "application" / name).is_dir():
            (stand_ins / file).write_text(text)
    given = [each for each in os.environ.get("PYTHONPATH", "").split(":") if each and Path(each) != ROOT]
    paths = [*([] if stock else [str(ROOT)]), str(stand_ins), *given]
    environment = {**os.environ, "PYTHONPATH": ":".join(paths), "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment |= dict(application.environment)
    environment["STOCK_STAND_INS"] = "0" if application.runs_without_ipu else "1"
    if application.keras_2:
        environment["TF_USE_LEGACY_KERAS"] = "1"
    return environment


def _launcher(scratch: Path, application: Application, stock: bool | None) -> list[str]:
    user_ops = scratch / "user_ops.py"
    first = "" if stock is None else f"import runpy\n\nrunpy.run_path({str(SAME_ON_BOTH)!r})\n"
    user_ops.write_text(first + application.user_ops)
    return ["-m", "ipu_tf", "--stats", "--user-ops", str(user_ops)]


def _notebook(file: Path) -> None:
    """Writes the Python of a notebook to a file beside it."""
    cells = json.loads(file.read_text())["cells"]
    lines = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code").splitlines()
    python = [line for line in lines if not line.lstrip().startswith(("%", "!"))]
    file.with_name(NOTEBOOK).write_text("\n".join(python))


def _change(file: Path, pairs: dict[str, str]) -> None:
    text = file.read_text()
    for pattern, replacement in pairs.items():
        text, count = re.subn(rf"(?m)^{pattern}", replacement, text)
        if not count:
            raise ValueError(f"{file.name} must have a line that begins with {pattern!r}.")
    file.write_text(text)
