"""`python -m ipu_tf -m MODULE` runs a module as `python -m MODULE` does, and child processes find Graphcore's names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ipu_tf._compat.alias_names import ALIASES, FOLDERS
from ipu_tf._compat.child_processes import sitecustomize
from tests.ipu_tf.compat.test_launcher import ENDINGS, NOTHING_RAN, PREAMBLE, Done, launch, python, write

ROOT = Path(__file__).resolve().parents[3]
#: Frames of Python's own that run a module, above the module's.
RUNPY = re.compile(r'(  File "<frozen [^\n]*\n)+')


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with a package, whose parts are to be run."""
    write(tmp_path, "import sys\nprint(__name__, sys.argv)", "package/__init__.py")
    write(tmp_path, PREAMBLE + "from . import beside\nprint(beside.value)", "package/__main__.py")
    write(tmp_path, "value = 7", "package/beside.py")
    write(tmp_path, "", "package/below/__init__.py")
    write(tmp_path, PREAMBLE + "import package.beside", "package/below/module.py")
    for name, ending in ENDINGS.items():
        write(tmp_path, PREAMBLE + ending, f"ending_{name.replace(' ', '_')}.py")
    return tmp_path


MODULES = ("package", "package.__main__", "package.below.module", *(f"ending_{n.replace(' ', '_')}" for n in ENDINGS))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_runs_as_python_runs_it(package: Path, module: str) -> None:
    """Output and exit code are Python's own, and so is the traceback, without the frames above the module's."""
    args = ("-m", module, "--stats", "x", "-m", "y")
    plain, launched = python(*args, cwd=package), launch(*args, cwd=package)
    assert _comparable(launched.stdout) == _comparable(plain.stdout)
    assert _comparable(launched.stderr) == _comparable(plain.stderr)
    assert launched.returncode == plain.returncode


def _comparable(text: str) -> str:
    """An output without addresses of objects, and without what stands above the module's own frames."""
    return re.sub("0x[0-9a-f]+", "", RUNPY.sub("", text).replace("Traceback (most recent call last):\n", ""))


WRONG = ("absent", "package.below", "absent.module", "package.beside.more", ".beside", "ending_end.py")


@pytest.mark.parametrize("module", WRONG)
def test_a_module_that_cannot_run_is_named_as_python_names_it(package: Path, module: str) -> None:
    plain, launched = python("-m", module, cwd=package), launch("-m", module, cwd=package)
    assert plain.returncode == launched.returncode == 1
    assert launched.stderr == plain.stderr
    assert _comparable(launched.stdout) == _comparable(plain.stdout)


def test_the_name_may_follow_the_option_at_once_and_stats_come_last(package: Path) -> None:
    done = launch("--stats", "-mpackage.beside", cwd=package)
    assert done.stdout.splitlines()[-1] == NOTHING_RAN


def test_a_module_written_for_tensorflow_1_gets_it(tmp_path: Path) -> None:
    write(tmp_path, "", "old/__init__.py")
    write(tmp_path, "def make():\n    import tensorflow as tf\n    return tf.placeholder(tf.float32)", "old/helper.py")
    text = "from old.helper import make\nfrom tensorflow.python import ipu\nprint(make().shape, ipu.__name__)"
    write(tmp_path, text, "old/train.py")
    done = launch("-m", "old.train", cwd=tmp_path)
    assert done.stdout == "<unknown> ipu_tf\n", done.stderr


def test_packages_around_a_module_get_its_tensorflow(tmp_path: Path) -> None:
    """They are imported before it, and what they import is the program's as well."""
    write(tmp_path, "from old import net", "old/__init__.py")
    write(tmp_path, "import tensorflow as tf\ndef drop(x):\n    return tf.nn.dropout(x, 0.9)", "old/net.py")
    text = """
        import tensorflow as tf
        from old.net import drop
        tf.set_random_seed(0)
        kept = drop(tf.ones([10000]))
        with tf.Session() as session:
            print((session.run(kept) > 0).mean() > 0.8)
    """
    write(tmp_path, textwrap.dedent(text), "old/train.py")
    done = launch("-m", "old.train", cwd=tmp_path)
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize("how", ["poprun", "child"])
def test_a_module_in_a_child_process_gets_tensorflow_1(tmp_path: Path, how: str) -> None:
    write(tmp_path, "", "old/__init__.py")
    write(tmp_path, "def make():\n    import tensorflow as tf\n    return tf.placeholder(tf.float32)", "old/helper.py")
    write(tmp_path, "from old.helper import make\nprint(make().shape)", "old/train.py")
    command = "[sys.executable, '-m', 'old.train']"
    if how == "poprun":
        poprun = "[sys.executable, '-c', 'from ipu_tf._poprun.command_line import main; main()']"
        command = f"[*{poprun}, '--num-instances', '1', '--num-replicas', '1', *{command}]"
    write(tmp_path, f"import subprocess, sys\nsys.exit(subprocess.run({command}).returncode)", "start.py")
    done = launch("start.py", cwd=tmp_path)
    assert done.returncode == 0 and "<unknown>" in done.stdout, done.stderr


CHILD = """
    import sys
    early = {"tensorflow", "ipu_tf"} & set(sys.modules)
    from tensorflow.python import ipu
    from tensorflow.keras import ipu as keras_ipu
    import popdist
    print(early, ipu.__name__, keras_ipu.__name__, popdist.__name__, [p for p in sys.path if "child_processes" in p])
"""
FOUND = "set() ipu_tf keras_ipu ipu_tf.popdist []\n"
STARTS = """
    import os, subprocess, sys
    os.environ.update({environment})
    ran = subprocess.run([sys.executable, "child.py"], capture_output=True, text=True)
    print(ran.stdout, end="")
    print(ran.stderr, file=sys.stderr)
    sys.exit(ran.returncode)
"""


def started(folder: Path, environment: dict[str, str], **outer: str) -> Done:
    """A program that starts a child, launched from a folder where only the launcher finds this project."""
    write(folder, CHILD, "child.py")
    program = write(folder, STARTS.format(environment=environment))
    launcher = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from ipu_tf._compat.launcher import main; main()"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | outer
    command = [sys.executable, "-c", launcher, str(program)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_a_child_process_finds_the_names(tmp_path: Path) -> None:
    """Also where this project is not installed, and lies on the path of the launcher's process alone."""
    done = started(tmp_path, {})
    assert (done.returncode, done.stdout) == (0, FOUND), done.stderr


@pytest.mark.parametrize("first", ["ipu_tf.popdist", "keras_ipu"])
def test_a_child_process_finds_the_names_where_it_imports_this_project_first(tmp_path: Path, first: str) -> None:
    """TensorFlow, at whose import names are prepared, is imported in the middle of this project's modules then."""
    text = (
        f"import {first}\nimport popdist\nfrom tensorflow.keras import ipu as keras_ipu\n"
        "from ipu_tf._config.default_rules import has_one_ipu_by_default, rules_hold_by_default\n"
        "print(popdist.__name__, keras_ipu.__name__, has_one_ipu_by_default(), rules_hold_by_default())"
    )
    program = write(tmp_path, text)
    aliases = str(Path(sitecustomize.__file__).parent)
    env = {**os.environ, "IPU_TF_ALIASES": "1", "PYTHONPATH": os.pathsep.join((aliases, str(ROOT)))}
    done = subprocess.run([sys.executable, program], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ipu_tf.popdist keras_ipu True True\n"), done.stderr


@pytest.mark.parametrize("by", ["the program", "the user"])
def test_a_child_process_is_left_alone_where_the_environment_says_so(tmp_path: Path, by: str) -> None:
    off = {"IPU_TF_ALIASES": "0"}
    done = started(tmp_path, off if by == "the program" else {}, **(off if by == "the user" else {}))
    assert done.returncode != 0
    assert "cannot import name 'ipu'" in done.stderr


def test_a_python_process_that_nobody_launched_finds_nothing(tmp_path: Path) -> None:
    assert "cannot import name 'ipu'" in python(write(tmp_path, CHILD), cwd=tmp_path).stderr


def test_another_sitecustomize_still_runs(tmp_path: Path) -> None:
    write(tmp_path, "print('another', __name__, __file__)", "elsewhere/sitecustomize.py")
    done = started(tmp_path, {}, PYTHONPATH=str(tmp_path / "elsewhere"))
    another = f"another sitecustomize {tmp_path / 'elsewhere' / 'sitecustomize.py'}\n"
    assert done.stdout == another * 2 + FOUND, done.stderr  # in the launcher's process and in the child


def test_a_child_that_runs_the_launcher_itself(tmp_path: Path) -> None:
    write(tmp_path, CHILD, "child.py")
    text = """
        import subprocess, sys
        sys.exit(subprocess.run([sys.executable, "-m", "ipu_tf", "--stats", "child.py"]).returncode)
    """
    done = launch(write(tmp_path, text), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == NOTHING_RAN


SPAWNS = """
    import multiprocessing
    import tensorflow as tf
    from tensorflow.python import ipu

    def name(_):
        return ipu.__name__, tf.placeholder(tf.float32).shape.rank

    if __name__ == "__main__":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.map(name, [0]))
"""


def test_a_process_of_multiprocessing_has_what_its_program_has(tmp_path: Path) -> None:
    done = launch(write(tmp_path, SPAWNS), cwd=tmp_path)
    assert done.stdout == "[('ipu_tf', None)]\n", done.stderr


def test_every_name_of_graphcore_s_is_waited_for() -> None:
    assert {name.partition(".")[0] for name in (*ALIASES, *FOLDERS)} == sitecustomize.ROOTS


_OF_PYTEST = """
from tensorflow.python import ipu
from ipu_tf._config.state import graphcore_rules

def test_rules():
    assert graphcore_rules() and ipu.config.IPUConfig().graphcore_rules
"""


def test_graphcores_rules_hold_in_tests_too(tmp_path: Path) -> None:
    """pytest imports the modules of installed plugins by itself, this package's among them."""
    write(tmp_path, _OF_PYTEST, "test_of_a_program.py")
    done = launch("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_of_a_program.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
