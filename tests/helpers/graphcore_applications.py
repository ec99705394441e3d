"""Runs Graphcore's applications unchanged, on generated data and with small sizes, and prints the table of the results.

    git clone https://github.com/graphcore/examples
    python -m tests.helpers.graphcore_applications examples                 all of them
    python -m tests.helpers.graphcore_applications examples abc resnet-8    some, by the names below

`docs/graphcore_code.md` has the table. Each runs in a copy of its folder. What an application imports and does not
need on its way is stood in for by `STAND_INS`; other packages have to be installed beside this project.
"""

from __future__ import annotations

import dataclasses
import json
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

#: The Python of a notebook.
NOTEBOOK = "notebook.py"

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
        command: of its README, or a notebook, of which the cells of Python are run.
        sizes: arguments that make it small, and give it generated data.
        packages: what it needs beside this project.
        keras_2: whether it needs Keras 2 itself, `tf_keras`.
        changes: file -> pairs of a pattern and its replacement: sizes that no argument sets.
        data: a program that makes its data in its folder.
        user_ops: functions for its custom ops, whose code is C++ for IPUs: the file of the launcher's `--user-ops`.
        says: what its output has when it has run to its end.
        loss: a pattern with one group, the loss of an epoch or of a part of the training.
    """

    folder: str
    command: str
    sizes: str = ""
    packages: Sequence[str] = ()
    keras_2: bool = False
    changes: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    data: str = ""
    user_ops: str = ""
    says: str = ""
    loss: str = ""


_ABC = "ai_for_simulation/abc_covid_19/tensorflow2"
_CNNS = "vision/cnns/tensorflow2"
_PROBABILITY = ("tensorflow-probability", "tf_keras")
_SMALL_ABC = "--tolerance 1e6 --n-samples-target 5 --n-samples-per-batch 1000 --samples-filepath samples.txt"
_SMALL_CNN = "--synthetic-data host --weight-updates-per-epoch 2 --seed 1"
_CNN_PACKAGES = ("tensorflow-datasets", "tf_keras")
_SPLIT_CNN = """--num-replicas 2 --pipeline-splits conv3_block1_post_addition_relu --loss-scaling 128 \
--norm-layer '{"name": "group_norm", "num_groups": 4}' --num-epochs 2 --gradient-accumulation 4"""
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
_UNET = "vision/unet_medical/tensorflow2"
_UNET_PACKAGES = ("Pillow", "scikit-learn", "tf_keras")
_UNET_TRAINING = (
    "--nb-ipus-per-replica 4 --micro-batch-size 1 --gradient-accumulation-count 24 --train --learning-rate 0.0024"
)
_SMALL_UNET = "--host-generated-data --num-epochs 6 --gradient-accumulation-count 8 --steps-per-execution 16"
_UNET_CHANGES = {
    "dataset.py": {
        r"( +X.*)572, 572\)\)\.astype": r"\g<1>220, 220)).astype",
        r"(.*)388, 388, args": r"\g<1>36, 36, args",
    },
    "model.py": {
        r"( +)inputs = Input\(\(572, 572, 1\)\)": r"\g<1>inputs = Input((220, 220, 1))",
        r"( +)crop_sizes = .*": r"\g<1>crop_sizes = [40, 24, 16, 12]",
        r"( +)filters = .*": r"\g<1>filters = [8, 16, 32, 64, 128]",
    },
}
#: The program's `crop.cpp`, in Python.
_CROP = """
import tensorflow as tf
import ipu_tf

def crop(x, attributes):
    start = int(x.shape[1] * (1 - float(attributes)) / 2)
    return x[:, start : x.shape[1] - start, start : x.shape[1] - start, :]

def crop_gradient(gradients, inputs, outputs):
    border = (inputs[0].shape[1] - outputs[0].shape[1]) // 2
    return tf.pad(gradients[0], [[0, 0], [border, border], [border, border], [0, 0]])

ipu_tf.register_user_op("libcustom_op.so", "Build", crop, crop_gradient)
"""
_UNET_TRAINED = Application(
    _UNET,
    f"main.py {_UNET_TRAINING}",
    _SMALL_UNET,
    _UNET_PACKAGES,
    keras_2=True,
    changes=_UNET_CHANGES,
    user_ops=_CROP,
    says="Training complete",
    loss=r"s/step - loss: ([\d.]+)",
)
_DEEPLOB = Application(
    "finance/deeplob/tensorflow2",
    "",
    packages=("scikit-learn",),
    changes={NOTEBOOK: {r"epochs = 20": "epochs = 10", r"steps_per_execution = 100": "steps_per_execution = 4"}},
    data="""
import zipfile
import numpy as np
random = np.random.default_rng(0)
with zipfile.ZipFile("data.zip", "w") as archive:
    for part, number, count in [("Train", 7, 2000), ("Test", 7, 250), ("Test", 8, 250), ("Test", 9, 250)]:
        prices = random.normal(size=count).cumsum()
        orders = prices + 0.1 * random.normal(size=(144, count))
        labels = np.digitize(np.gradient(prices), (-0.5, 0.5)) + 1
        name = f"{part}_Dst_NoAuction_DecPre_CF_{number}.txt"
        np.savetxt(name, np.vstack([orders, *[labels] * 5]))
        archive.write(name)
""",
    says="classification_report",
    loss=r"24/24[^\n]*- loss: ([\d.]+)\n",
)

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
        _CNN_PACKAGES,
        keras_2=True,
        says="Epoch 6/6",
        loss=_LOGGED_LOSS,
    ),
    "resnet-8-replicas-pipeline-group-norm": Application(
        _CNNS,
        f"{_RESNET_8} --half-partials True --logs-per-epoch 1 {_SPLIT_CNN}",
        _SMALL_CNN,
        _CNN_PACKAGES,
        keras_2=True,
        says="Epoch 2/2",
        loss=_LOGGED_LOSS,
    ),
    "resnet-18": Application(
        _CNNS,
        "train.py --model resnet18 --dataset cifar10 --precision 16.16 --micro-batch-size 4 --validation False",
        f"{_SMALL_CNN} --num-epochs 2 --gradient-accumulation 4 --logs-per-epoch 1",
        _CNN_PACKAGES,
        keras_2=True,
        says="Epoch 2/2",
        loss=_LOGGED_LOSS,
    ),
    "unet": dataclasses.replace(_UNET_TRAINED, sizes=f"{_SMALL_UNET} --dtype float32 --partials-type float"),
    "unet-float16": dataclasses.replace(_UNET_TRAINED, command=f"main.py --dtype float16 {_UNET_TRAINING}"),
    "unet-inference": Application(
        _UNET,
        "main.py --nb-ipus-per-replica 1 --micro-batch-size 2 --steps-per-execution 400 --infer --host-generated-data "
        "--benchmark",
        "--steps-per-execution 4",
        _UNET_PACKAGES,
        keras_2=True,
        changes=_UNET_CHANGES,
        says="Inference complete",
    ),
    "deeplob-seq2seq": dataclasses.replace(_DEEPLOB, command="Multi-Horizon-DeepLOBSeq2Seq-training.ipynb"),
    "deeplob-attention": dataclasses.replace(_DEEPLOB, command="Multi-Horizon-DeepLOBAttention-training.ipynb"),
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
        arguments = shlex.split(f"{application.command} {application.sizes}")
        if application.command.endswith(".ipynb"):
            _notebook(folder / application.command)
            arguments = [NOTEBOOK]
        if application.data:
            subprocess.run([sys.executable, "-c", application.data], cwd=folder, check=True)
        for file, pairs in application.changes.items():
            _change(folder / file, pairs)
        stand_ins = Path(scratch) / "stand_ins"
        stand_ins.mkdir()
        for file, text in STAND_INS.items():
            (stand_ins / file).write_text(text)
        (Path(scratch) / "user_ops.py").write_text(application.user_ops)
        launcher = ["-m", "ipu_tf", "--stats", "--user-ops", str(Path(scratch) / "user_ops.py")]
        command = [sys.executable, *launcher, *arguments]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{stand_ins}", "TF_CPP_MIN_LOG_LEVEL": "3"}
        if application.keras_2:
            environment["TF_USE_LEGACY_KERAS"] = "1"
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    output = ran.stdout + ran.stderr
    losses = tuple(map(float, re.findall(application.loss, output))) if application.loss else ()
    return Done(ran.returncode == 0 and application.says in output, losses, output)


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
