"""Runs Graphcore's applications unchanged, on generated data and with small sizes, and prints the table of the results.

    git clone https://github.com/graphcore/examples
    python -m tests.helpers.graphcore_applications examples                 all of them
    python -m tests.helpers.graphcore_applications examples abc resnet-8    some, by the names below

`docs/graphcore_code.md` has the table. Each runs in a copy of its folder. What an application imports and does not
need on its way is stood in for by `STAND_INS`; other packages have to be installed beside this project.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
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
    "examples_utils.py": "def parse_yaml_config(args, parser):\n    return args\n",
}


@dataclasses.dataclass(frozen=True)
class Application:
    """One command of an application.

    Attributes:
        folder: of the application, within Graphcore's repository.
        command: of its README.
        sizes: arguments that make it small, and give it generated data.
        packages: what it needs beside this project.
        keras_2: whether it needs Keras 2 itself, `tf_keras`.
        changes: file -> pairs of a pattern and its replacement: sizes that no argument sets.
        says: what its output has when it has run to its end.
        loss: a pattern with one group, the loss of an epoch or of a part of the training.
    """

    folder: str
    command: str
    sizes: str = ""
    packages: Sequence[str] = ()
    keras_2: bool = False
    changes: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    says: str = ""
    loss: str = ""


_ABC = "ai_for_simulation/abc_covid_19/tensorflow2"
_CNNS = "vision/cnns/tensorflow2"
_PROBABILITY = ("tensorflow-probability", "tf_keras")
_SMALL_ABC = "--tolerance 1e6 --n-samples-target 5 --n-samples-per-batch 1000 --samples-filepath samples.txt"
#: In float16 these compile for minutes.
_SMALL_CNN = "--synthetic-data host --weight-updates-per-epoch 2 --precision 32.32 --seed 1"
_RESNET_8 = "train.py --model cifar_resnet8 --num-epochs 6 --precision 16.16 --micro-batch-size 8 --validation False"
_LOGGED_LOSS = r"'loss: ([\d.]+) '"
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
    "abc": Application(_ABC, "ABC_IPU.py", _SMALL_ABC, _PROBABILITY, says="Time per run"),
    "abc-2-replicas-chunks": Application(
        _ABC,
        "ABC_IPU.py --replication-factor 2 --enqueue-chunk-size 100",
        _SMALL_ABC,
        _PROBABILITY,
        says="Time per run",
    ),
    "adgmom": Application(
        "probability/adversarial_generalized_method_of_moments/tensorflow2",
        "tf2_AdGMoM.py",
        packages=(*_PROBABILITY, "scikit-learn"),
        keras_2=True,
        changes={"AdGMoM_conf_default.yaml": _SMALL_ADGMOM},
        says="Iterations",
    ),
    "resnet-8": Application(
        _CNNS,
        f"{_RESNET_8} --half-partials True --gradient-accumulation 8 --logs-per-epoch 1",
        _SMALL_CNN,
        ("tensorflow-datasets", "tf_keras"),
        keras_2=True,
        says="Epoch 6/6",
        loss=_LOGGED_LOSS,
    ),
    "neural-image-fields": Application(
        "vision/neural_image_fields/tensorflow2",
        "train_nif.py --input Mandrill_portrait_2_Berlin_Zoo.jpg --disable-psnr",
        "--train-samples 2048 --epochs 4",
        ("opencv-python", "tf_keras"),
        keras_2=True,
        says="Trained NIF",
        loss=r"Loss: ([\d.e-]+)",
    ),
}


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
        counts = re.findall(r"(?m)^ipu_tf: (\d+ programs? compiled.*)", self.text)[-1]
        falls = f"; loss {self.losses[0]:.4f} to {self.losses[-1]:.4f}" if self.losses else ""
        return f"runs to its end{falls}; {counts}"


def run(checkout: Path, application: Application) -> Done:
    """Runs an application under the launcher."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "application"
        shutil.copytree(checkout / application.folder, folder)
        for file, pairs in application.changes.items():
            _change(folder / file, pairs)
        stand_ins = Path(scratch) / "stand_ins"
        stand_ins.mkdir()
        for file, text in STAND_INS.items():
            (stand_ins / file).write_text(text)
        arguments = shlex.split(f"{application.command} {application.sizes}")
        command = [sys.executable, "-m", "ipu_tf", "--stats", *arguments]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{stand_ins}", "TF_CPP_MIN_LOG_LEVEL": "3"}
        if application.keras_2:
            environment["TF_USE_LEGACY_KERAS"] = "1"
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    output = ran.stdout + ran.stderr
    losses = tuple(map(float, re.findall(application.loss, output))) if application.loss else ()
    return Done(ran.returncode == 0 and application.says in output, losses, output)


def _change(file: Path, pairs: dict[str, str]) -> None:
    text = file.read_text()
    for pattern, replacement in pairs.items():
        text, count = re.subn(rf"(?m)^{pattern}", replacement, text)
        if not count:
            raise ValueError(f"{file.name} must have a line that begins with {pattern!r}.")
    file.write_text(text)


def line(checkout: Path, name: str) -> tuple[bool, str]:
    """Runs an application; returns whether it ran to its end, and its line of the table."""
    application = APPLICATIONS[name]
    done = run(checkout, application)
    result = done.result()
    if not done.whole:
        print(done.text[-3000:], file=sys.stderr)
    keras_2 = "Keras 2; " if application.keras_2 else ""
    folder = application.folder.removesuffix("/tensorflow2")
    return done.whole, f"| {folder} | `{application.command}` | {keras_2}{result} |"


def main() -> None:
    """Runs the applications of the command line."""
    checkout, *names = sys.argv[1:]
    print("| application | command of its README | result |\n|---|---|---|", flush=True)
    whole = True
    for name in names or APPLICATIONS:
        ran, text = line(Path(checkout), name)
        print(text, flush=True)
        whole = whole and ran
    sys.exit(not whole)


if __name__ == "__main__":
    main()
