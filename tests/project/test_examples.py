"""Every example runs and prints what it documents."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STATS = re.compile(
    r"ipu_tf: (\d+) programs? compiled, (\d+) executions?, (\d+) steps?, \d+ replicas? "
    r"on (?:1 device \(cpu\)|4 devices \(cpu\)|0 devices \(none\))"
)

CONFIGURED = f"ipu_tf: configured /device:IPU:0 with 1 emulated IPU (jax {importlib.metadata.version('jax')} on cpu)"


@dataclasses.dataclass(frozen=True)
class Ran:
    """Output of a run of an example, and the counts of its device.

    Attributes:
        output: all of its standard output.
        programs: programs the device compiled.
        executions: executions of them.
        steps: steps of those.
        log: all of its standard error.
    """

    output: str
    programs: int
    executions: int
    steps: int
    log: str


def run(name: str, *arguments: str) -> Ran:
    """Runs an example."""
    return run_script(ROOT / "examples" / f"{name}.py", *arguments)


def run_script(script: Path, *arguments: str) -> Ran:
    """Runs a script under the launcher, which counts what the device does; warnings are errors."""
    launcher = [sys.executable, "-W", "error", "-m", "ipu_tf", "--stats"]
    command = [*launcher, str(script), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    counted = STATS.search(done.stdout.splitlines()[-1])
    assert counted, done.stdout
    programs, executions, steps = map(int, counted.groups())
    return Ran(done.stdout, programs, executions, steps, done.stderr)


def numbers(output: str, first_column: str) -> list[list[float]]:
    """The rows of the table whose first column is called `first_column`, as numbers."""
    lines = output.splitlines()
    start = next(i for i, line in enumerate(lines) if line.split()[:1] == [first_column])
    rows = [line.replace("%", "").split() for line in lines[start + 1 :]]
    return [list(map(float, row)) for row in rows if row and row[0].isdigit()]


def test_every_example_is_run_here() -> None:
    text = Path(__file__).read_text()
    names = [path.stem for path in (ROOT / "examples").glob("*.py") if path.stem != "__init__"]
    assert names
    assert [name for name in names if f'run("{name}"' not in text] == []


def complete_programs() -> list[str]:
    """The README's blocks of Python."""
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


#: What each program of the README prints, and the programs, executions and steps of the device: two epochs of 20 steps;
#: 20 steps of a split model, whose pipeline is drawn.
README_PROGRAMS = (
    ("loss: ", (1, 2, 40)),
    ("IPU 1  stage 1", (1, 1, 20)),
)


def test_the_readme_s_programs_are_all_run() -> None:
    assert len(complete_programs()) == len(README_PROGRAMS)


@pytest.mark.parametrize("index", range(len(README_PROGRAMS)))
def test_a_program_of_the_readme_runs_alone(index: int, tmp_path: Path) -> None:
    """In a process of its own, and without the launcher, which would configure a device for it."""
    script = tmp_path / "program.py"
    counting = "\nfrom ipu_tf.emulation import device_counts\nprint(device_counts())\n"
    script.write_text(complete_programs()[index] + counting)
    command = [sys.executable, "-W", "error", str(script)]
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed, counts = README_PROGRAMS[index]
    assert printed in done.stdout
    counted = re.search(r"programs=(\d+), executions=(\d+), steps=(\d+)", done.stdout.splitlines()[-1])
    assert counted and tuple(map(int, counted.groups())) == counts, done.stdout


def test_digits_cnn() -> None:
    """The demonstration as `make demo` runs it: over 95 %, and a time per step with and without the three lines."""
    ran = run("digits_cnn")
    accuracy = re.search(r"test accuracy: ([\d.]+)% of 352 images", ran.output)
    assert accuracy and float(accuracy[1]) > 95.0, ran.output
    assert "Epoch 15/15" in ran.output
    times = re.findall(r"(with the three lines|without them).* ([\d.]+) ms$", ran.output, re.MULTILINE)
    assert [which for which, _ in times] == ["with the three lines", "without them", "without them"]
    assert all(float(time) > 0 for _, time in times)
    assert re.search(r"with the three lines: [\d.]+ times (faster|slower)", ran.output)
    # One program to train and one to test, at 44 steps an epoch: 15 epochs shown, 6 for the comparison, and the test.
    assert (ran.programs, ran.executions, ran.steps) == (2, 22, 22 * 44)
    assert re.findall("ipu_tf: .*", ran.log) == [CONFIGURED]


def test_digits_cnn_takes_its_options() -> None:
    ran = run("digits_cnn", "--epochs=2", "--batch-size=64", "--steps-per-execution=11", "--no-comparison")
    assert "Epoch 2/2" in ran.output
    assert "stock Keras" not in ran.output
    assert (ran.executions, ran.steps) == (2 * 2 + 1, 2 * 22 + 11)


def test_digits_cnn_explains_itself() -> None:
    command = [sys.executable, "examples/digits_cnn.py", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    for option in ("--epochs", "--batch-size", "--steps-per-execution", "--no-comparison"):
        assert option in done.stdout


def test_wrapped_function() -> None:
    ran = run("wrapped_function")
    sums = r"\[11\. 22\. 33\.\] +\[101\. 202\. 303\.\]"
    for way in ("TF1 session", r"tf\.function"):
        assert re.search(rf"^{way} +{sums}$", ran.output, re.MULTILINE), ran.output
    assert (ran.programs, ran.executions, ran.steps) == (2, 2, 2)


def test_training_loop_tf2() -> None:
    ran = run("training_loop_tf2")
    rows = numbers(ran.output, "steps")
    assert [row[0] for row in rows] == [100, 200, 300, 400, 500]
    *_, last_loss, slope, offset = rows[-1]
    assert last_loss < 0.02 < rows[0][1]
    assert slope == pytest.approx(3.0, abs=0.05)
    assert offset == pytest.approx(-1.0, abs=0.05)
    assert (ran.programs, ran.executions, ran.steps) == (1, 5, 500)


def test_training_loop_tf1() -> None:
    ran = run("training_loop_tf1")
    rows = numbers(ran.output, "steps")
    assert [row[0] for row in rows] == [50, 100, 150, 200, 250]
    # The weights start as zeros: the first loss is that of three equally likely classes.
    assert rows[0][1] == pytest.approx(1.0986, abs=1e-4)
    assert rows[-1][3] > 90.0
    assert (ran.programs, ran.executions, ran.steps) == (1, 5, 250)


def test_check_parity() -> None:
    """2 replicas, 2 stages and 4 batches to an update give what plain Keras gives."""
    ran = run("check_parity")
    title = "2 replicas x 4 micro-batches an update x 2 IPUs a replica, against plain Keras: 3 weight updates"
    assert title in ran.output
    assert re.search(r"^gradient norm +3 .* ok$", ran.output, re.MULTILINE), ran.output
    assert "\nPARITY: " in ran.output
    assert (ran.programs, ran.executions, ran.steps) == (1, 3, 12)


def test_pipeline_timetable() -> None:
    """Timetables are data: the device has nothing to do."""
    ran = run("pipeline_timetable", "--stages=2")
    assert "IPU 1  stage 1  ·   F0  B0 F1  B1 F2" in ran.output
    assert (ran.programs, ran.executions, ran.steps) == (0, 0, 0)


def test_splits_of_an_update_give_the_same_weights() -> None:
    ran = run("split_training", "--updates", "3")
    rows = numbers(ran.output, "replicas")
    assert len(rows) == 6
    assert all(row[-1] < 2e-5 for row in rows), ran.output
    assert ran.programs == ran.executions == 6
    assert ran.steps == 3 * (1 + 8 + 1 + 4 + 8 + 4)


def percent(output: str, before: str) -> float:
    """The percentage that follows a text."""
    found = re.search(rf"{before}\D*([\d.]+)%", output)
    assert found, output
    return float(found[1])


@pytest.mark.slow
def test_transfer_learning() -> None:
    ran = run("transfer_learning")
    assert percent(ran.output, "has not seen:") > 75
    assert ran.programs == 3  # the features, training the head, testing it


@pytest.mark.slow
@pytest.mark.slow
def test_chat() -> None:
    pytest.importorskip("keras_hub", reason="KerasHub is not installed: pip install keras-hub")
    ran = run("chat")
    for question, answer in {"snow": "snow is white .", "a lemon": "a lemon is yellow ."}.items():
        assert f"> what color is {question} ?\n{answer}\n" in ran.output
    assert "3 executions, 29 words in the cache" in ran.output


def test_text_classification() -> None:
    ran = run("text_classification")
    assert percent(ran.output, "has not seen:") > 95
    good, bad = (re.search(rf"(\d+)% praise   the film was {end}$", ran.output, re.M) for end in ("great", "not great"))
    assert good and bad and int(good[1]) > 80 and int(bad[1]) < 20


@pytest.mark.slow
def test_variational_autoencoder() -> None:
    ran = run("variational_autoencoder")
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+),", ran.output)]
    assert losses[0] > losses[1] > losses[2]
    assert len(ran.output.partition("nobody wrote:\n")[2].splitlines()) >= 8
    assert (ran.programs, ran.steps) == (2, 40 * 28 + 1)


@pytest.mark.slow
def test_time_series() -> None:
    ran = run("time_series")
    found = re.search(r"mean error ([\d.]+); of the forecast that nothing changes: ([\d.]+)", ran.output)
    assert found and float(found[1]) < float(found[2]) / 4


@pytest.mark.slow
def test_accumulated_batch() -> None:
    ran = run("accumulated_batch")
    found = re.search(r"largest difference of a weight: (\S+)", ran.output)
    assert found and float(found[1]) < 1e-5
    assert ran.steps == 12 * 16


@pytest.mark.slow
def test_custom_loop_with_feeds() -> None:
    ran = run("custom_loop_with_feeds")
    assert percent(ran.output.splitlines()[-2], r"6 .* ") > 90
    assert (ran.programs, ran.executions, ran.steps) == (1, 6, 6 * 56)


@pytest.mark.slow
def test_multi_device_jax() -> None:
    ran = run("multi_device_jax")
    assert "4 replicas on 4 JAX devices" in ran.output
    assert "4 replicas on 4 devices (cpu)" in ran.output.splitlines()[-1]
    found = re.search(r"with the same samples: (\S+)", ran.output)
    assert found and float(found[1]) < 1e-5
