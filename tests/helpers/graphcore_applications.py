"""Runs Graphcore's applications unchanged, on generated data and with small sizes.

    git clone https://github.com/graphcore/examples
    python -m tests.helpers.graphcore_applications examples             all of them
    python -m tests.helpers.graphcore_applications examples abc adgmom  some, by the names below

`docs/graphcore_code.md` has the results. Each runs in a copy of its folder. What an application imports and does not
need on its way is stood in for by `STAND_INS`; other packages have to be installed beside this project.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Packages without which an application would only not be imported: reports to a service, another framework's tensors.
STAND_INS = {
    "torch.py": "class Tensor: ...\n",
    "wandb.py": "def init(*args, **kwargs): ...\ndef log(*args, **kwargs): ...\n",
    "examples_utils.py": "def parse_yaml_config(args, parser):\n    return parser.parse_args(args)\n",
}


@dataclasses.dataclass(frozen=True)
class Application:
    """One command of an application.

    Attributes:
        folder: of the application, within Graphcore's repository.
        command: of its README, with small sizes.
        packages: what it needs beside this project.
        keras_2: whether it needs Keras 2 itself, `tf_keras`.
        changes: file -> pairs of a pattern and its replacement: sizes that no argument sets.
        says: what its output has when it has run to its end.
    """

    folder: str
    command: Sequence[str]
    packages: Sequence[str] = ()
    keras_2: bool = False
    changes: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    says: str = ""


_ABC = "ai_for_simulation/abc_covid_19/tensorflow2"
_PROBABILITY = ("tensorflow-probability", "tf_keras")
_SMALL_ABC = "--tolerance 1e6 --n-samples-target 5 --n-samples-per-batch 1000 --samples-filepath samples.txt"
_SMALL_ADGMOM = {
    r"n_samples: \d+": "n_samples: 200",
    r"n_steps: \d+": "n_steps: 40",
    r"iterations_per_loop: \d+": "iterations_per_loop: 10",
    r"hidden_layers: .*": "hidden_layers: [16, 16]",
    r"batch_size: \d+": "batch_size: 20",
    r"batch_size_hedge: \d+": "batch_size_hedge: 50",
    r"n_critics: \d+": "n_critics: 5",
}

APPLICATIONS: dict[str, Application] = {
    "abc": Application(_ABC, ("ABC_IPU.py", *_SMALL_ABC.split()), _PROBABILITY, says="Time per run"),
    "abc-2-replicas-chunks": Application(
        _ABC,
        ("ABC_IPU.py", *_SMALL_ABC.split(), "--replication-factor", "2", "--enqueue-chunk-size", "100"),
        _PROBABILITY,
        says="Time per run",
    ),
    "adgmom": Application(
        "probability/adversarial_generalized_method_of_moments/tensorflow2",
        ("tf2_AdGMoM.py",),
        (*_PROBABILITY, "scikit-learn"),
        keras_2=True,
        changes={"AdGMoM_conf_default.yaml": _SMALL_ADGMOM},
        says="Iterations",
    ),
}


def run(checkout: Path, name: str) -> bool:
    """Runs an application under the launcher; prints the end of its output, and whether it ran to its end."""
    application = APPLICATIONS[name]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "application"
        shutil.copytree(checkout / application.folder, folder)
        for file, pairs in application.changes.items():
            _change(folder / file, pairs)
        stand_ins = Path(scratch) / "stand_ins"
        stand_ins.mkdir()
        for file, text in STAND_INS.items():
            (stand_ins / file).write_text(text)
        command = [sys.executable, "-m", "ipu_tf", "--stats", *application.command]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{stand_ins}"}
        if application.keras_2:
            environment["TF_USE_LEGACY_KERAS"] = "1"
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    done = ran.returncode == 0 and application.says in ran.stdout + ran.stderr
    print(f"== {name}: {'ran to its end' if done else 'FAILED'}")
    print((ran.stdout + ran.stderr)[-1500:])
    return done


def _change(file: Path, pairs: dict[str, str]) -> None:
    text = file.read_text()
    for pattern, replacement in pairs.items():
        text, count = re.subn(rf"(?m)^{pattern}", replacement, text)
        if not count:
            raise ValueError(f"{file.name} must have a line that begins with {pattern!r}.")
    file.write_text(text)


def main() -> None:
    """Runs the applications of the command line."""
    checkout, *names = sys.argv[1:]
    done = {name: run(Path(checkout), name) for name in names or APPLICATIONS}
    for name, ran in done.items():
        print(f"{name:24} {'ran to its end' if ran else 'FAILED'}")
    sys.exit(not all(done.values()))


if __name__ == "__main__":
    main()
