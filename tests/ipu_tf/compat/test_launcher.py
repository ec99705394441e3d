"""`python -m ipu_tf SCRIPT` runs a program as Python would, with what an old program needs around it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ipu_tf._compat.detect_tf1 import ProgramStyle, program_style
from ipu_tf._compat.launcher_stats import NO_DEVICES, JaxDevices, stats_line
from ipu_tf._compat.tf1_program_names import FORMER_NAMES, GRAPH_MODE_NAMES
from ipu_tf.device.counters import DeviceCounts

ROOT = Path(__file__).resolve().parents[3]
NOTHING_RAN = "ipu_tf: 0 programs compiled, 0 executions, 0 steps, 1 replica on 0 devices (none)"
Done = subprocess.CompletedProcess[str]


def write(folder: Path, text: str, name: str = "program.py") -> Path:
    """A file with a program."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def python(*args: object, cwd: Path) -> Done:
    """Runs the interpreter of these tests."""
    command = [sys.executable, *map(str, args)]
    env = dict(os.environ, PYTHONPATH=str(ROOT), TF_CPP_MIN_LOG_LEVEL="3")
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def launch(*args: object, cwd: Path) -> Done:
    """Runs the launcher."""
    return python("-m", "ipu_tf", *args, cwd=cwd)


ENDINGS = {
    "end": "",
    "exit": "sys.exit(3)",
    "message": "sys.exit('to stderr')",
    "error": "def f():\n    raise ValueError('wrong')\ntry:\n    f()\nexcept ValueError:\n    1 / 0",
    "interrupt": "raise KeyboardInterrupt",
    "syntax": "x = = 1",
    "own hook": "sys.excepthook = lambda *args: print('hooked', args[0])\nraise ValueError",
}
PREAMBLE = """\
'''A program's docstring.'''
import __main__, atexit, pickle, sys, threading
print(sys.argv, sys.path[0], __name__, __file__, __doc__, __spec__, __package__, type(__loader__))
print(sorted(globals()), __main__.__dict__ is globals())
class Own: pass
print(type(pickle.loads(pickle.dumps(Own()))) is Own)
atexit.register(print, "at exit")
threading.Timer(0.2, lambda: print("late thread", Own)).start()
"""


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_runs_as_python_runs_it(tmp_path: Path, ending: str) -> None:
    """Output, traceback and exit code are Python's own, to the letter."""
    write(tmp_path, PREAMBLE + ENDINGS[ending], "sub/program.py")
    args = ("sub/program.py", "--stats", "x", "--help")
    plain, launched = python(*args, cwd=tmp_path), launch(*args, cwd=tmp_path)
    assert launched.stdout == plain.stdout
    assert launched.stderr == plain.stderr
    assert launched.returncode == plain.returncode


def test_sys_path_begins_with_the_folder_a_link_leads_to(tmp_path: Path) -> None:
    target = write(tmp_path, "import beside\nprint(beside.value)", "there/program.py")
    write(tmp_path, "value = 7", "there/beside.py")
    (tmp_path / "link.py").symlink_to(target)
    assert launch("link.py", cwd=tmp_path).stdout == "7\n"


@pytest.mark.parametrize("ending", ["end", "exit", "error"])
def test_stats_are_the_last_line(tmp_path: Path, ending: str) -> None:
    program = write(tmp_path, PREAMBLE + ENDINGS[ending])
    plain, launched = python(program, cwd=tmp_path), launch("--stats", program, cwd=tmp_path)
    assert launched.stdout == f"{plain.stdout}{NOTHING_RAN}\n"
    assert launched.stderr == plain.stderr
    assert launched.returncode == plain.returncode


def test_the_launcher_itself_imports_neither_tensorflow_nor_jax(tmp_path: Path) -> None:
    """So that it starts at once, and the environment a program sets before it imports them counts."""
    program = write(tmp_path, "import sys\nprint({'tensorflow', 'keras', 'jax'} & set(sys.modules))")
    assert launch(program, cwd=tmp_path).stdout == "set()\n"


def test_help_shows_an_example(tmp_path: Path) -> None:
    done = launch("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "usage: python -m ipu_tf [OPTIONS] SCRIPT [ARGS...]" in done.stdout
    assert "python -m ipu_tf [OPTIONS] -m MODULE [ARGS...]" in done.stdout
    assert "python -m ipu_tf --stats train.py --epochs 3" in done.stdout


def test_a_file_registers_functions_for_the_programs_custom_ops(tmp_path: Path) -> None:
    ops = write(tmp_path, "import ipu_tf\nipu_tf.register_user_op('libscale.so', 'Build', lambda x: 3 * x)", "ops.py")
    program = write(
        tmp_path,
        """
        import sys
        import tensorflow as tf
        from tensorflow.python import ipu

        outs = {"output_types": [tf.float32], "output_shapes": [tf.TensorShape([])]}
        print(sys.argv[1:], float(ipu.custom_ops.precompiled_user_op([tf.constant(2.0)], "libscale.so", outs=outs)[0]))
        """,
    )
    assert launch("--user-ops", ops, program, "--more", cwd=tmp_path).stdout.endswith("['--more'] 6.0\n")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "which script?"),
        (("--stat", "x.py"), "unrecognized arguments: --stat"),
        (("absent.py",), "No such file or directory"),
        (("--stats", "."), "Is a directory"),
        (("--user-ops", "absent.py", "x.py"), "--user-ops: must be a Python file that calls"),
        (("-m",), "argument expected for the -m option"),
    ],
)
def test_a_wrong_command_line_ends_with_code_2(tmp_path: Path, args: tuple[str, ...], says: str) -> None:
    done = launch(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


TF1_PROGRAM = """
    import os, sys
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf
    from tensorflow import keras
    from network import scaled

    x = tf.placeholder(tf.float32, [2])
    w = tf.get_variable("w", initializer=3.0)
    loss = tf.losses.mean_squared_error(tf.zeros([2]), scaled(x, w))
    step = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        _, value = session.run([step, loss], {x: [1.0, 2.0]})
        print(value, session.run(w), tf.executing_eagerly(), hasattr(tf, "no_such_name"))
        ones = tf.ones([1000])
        kept = tf.reduce_mean(tf.nn.dropout(ones, 0.99, seed=1) / ones, keep_dims=True)
        print(0.9 < session.run(kept)[0] < 1.1, session.run(tf.count_nonzero(tf.nn.dropout(ones, 0.9))) > 500)
        element = tf.data.Dataset.range(3).make_one_shot_iterator().get_next()
        print(session.run(element), tf.__version__, tf.compat.v1 is tf, sys.modules["tensorflow"].__version__[0])
        keras.layers.Dense(1)
        print(sys.modules["keras.src.backend.tensorflow.core"].tf.__version__[0], tf.keras.layers is keras.layers)
"""


def test_a_tensorflow_1_program_runs_unchanged(tmp_path: Path) -> None:
    """loss = mean((3 [1 2])^2) = 22.5; d loss / d w = 2 * 3 * mean([1 4]) = 15; w = 3 - 0.5 * 15."""
    program = write(tmp_path, TF1_PROGRAM)
    write(tmp_path, "import tensorflow as tf\ndef scaled(x, w): return tf.to_float(x) * w", "network.py")
    done = launch("--stats", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with_keep_prob = ["True True", "0 1.15.5 True 2", "2 True"]
    assert done.stdout.splitlines() == ["22.5 -4.5 False False", *with_keep_prob, NOTHING_RAN]


@pytest.mark.parametrize("first", ["keras", "tensorflow"])
def test_a_tensorflow_1_program_may_import_keras_and_tensorflow_in_any_order(tmp_path: Path, first: str) -> None:
    """Keras imports TensorFlow while it is not complete itself."""
    text = f"""
        import {first}
        import tensorflow as tf
        from tensorflow import losses
        import keras
        with tf.Session() as session:
            print(session.run(losses.absolute_difference([1.0], [3.0])), tf.metrics.mean is tf.compat.v1.metrics.mean,
                  tf.initializers.variables is tf.compat.v1.initializers.variables,
                  keras.losses.MeanSquaredError is tf.losses.MeanSquaredError)
    """
    done = launch(write(tmp_path, text), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2.0 True True True\n"


def test_a_program_for_keras_on_jax_may_import_keras_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There Keras imports TensorFlow when it has variables already, and is still not complete."""
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    text = """
        import keras
        import tensorflow as tf
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            print(keras.backend.backend(), session.run(tf.constant(2.0)))
    """
    done = launch(write(tmp_path, text), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "jax 2.0\n"


def test_a_tensorflow_2_program_gets_no_old_names(tmp_path: Path) -> None:
    text = """
        import tensorflow as tf
        tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
        print(tf.executing_eagerly(), hasattr(tf, "placeholder"))
    """
    assert launch(write(tmp_path, text), cwd=tmp_path).stdout == "True False\n"


IPU_PROGRAMS = {
    "TensorFlow 1": """
        from tensorflow.python.ipu import ipu_compiler, scopes
        from tensorflow.python.ipu.config import IPUConfig
        import tensorflow.compat.v1 as tf

        config = IPUConfig()
        config.auto_select_ipus = 1
        config.configure_ipu_system()
        with tf.device("cpu"):
            x = tf.placeholder(tf.float32, [2])
        with scopes.ipu_scope("/device:IPU:0"):
            [y] = ipu_compiler.compile(lambda x: 2 * x + 1, [x])
        with tf.Session() as session:
            print(session.run(y, {x: [1.0, 2.0]}))
    """,
    "TensorFlow 2": """
        import tensorflow as tf
        from tensorflow.python import ipu

        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.configure_ipu_system()
        strategy = ipu.ipu_strategy.IPUStrategy()
        with strategy.scope():
            double = tf.function(lambda x: 2 * x + 1, jit_compile=True)
            print(strategy.run(double, [tf.constant([1.0, 2.0])]).numpy())
    """,
}


@pytest.mark.parametrize("kind", IPU_PROGRAMS)
def test_an_ipu_program_runs_on_the_emulated_device(tmp_path: Path, kind: str) -> None:
    done = launch("--stats", write(tmp_path, IPU_PROGRAMS[kind]), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *_, value, stats = done.stdout.splitlines()
    assert value == "[3. 5.]"
    pattern = r"ipu_tf: 1 program compiled, 1 execution, 1 step, 1 replica on \d+ devices? \(cpu\)"
    assert re.fullmatch(pattern, stats), stats


def test_the_stats_line() -> None:
    counts = DeviceCounts(programs=1, executions=30, steps=1, replicas=4)
    assert stats_line(counts, JaxDevices(2, "gpu")) == (
        "ipu_tf: 1 program compiled, 30 executions, 1 step, 4 replicas on 2 devices (gpu)"
    )
    assert stats_line(DeviceCounts(), NO_DEVICES) == NOTHING_RAN


STYLES = {
    # Written for TensorFlow 1.
    "import tensorflow.compat.v1 as tf\nx = tf.constant(1)": ProgramStyle(tf1=True, former=False, settles=False),
    "from tensorflow.compat import v1 as tf\nx = tf.add(1, 2)": ProgramStyle(tf1=True, former=False, settles=False),
    "import tensorflow as tf\nwith tf.Session() as s: pass": ProgramStyle(tf1=True, former=True, settles=False),
    "import tensorflow\ntensorflow.train.AdamOptimizer(1)": ProgramStyle(tf1=True, former=True, settles=False),
    "from tensorflow import placeholder\nplaceholder(1)": ProgramStyle(tf1=True, former=True, settles=False),
    "import tensorflow as tf\ndef f():\n  return tf.compat.v1.placeholder(1)": ProgramStyle(True, False, False),
    "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()": ProgramStyle(tf1=True, former=False, settles=True),
    "import tensorflow.compat.v1 as tf\ntf.enable_eager_execution()": ProgramStyle(
        tf1=True, former=False, settles=True
    ),
    "import tensorflow as tf\ntf.reduce_sum(1, keep_dims=True)": ProgramStyle(True, True, False),
    "import tensorflow as tf\ntf.initializers.zeros(dtype=1)": ProgramStyle(True, True, False),
    "import tensorflow.compat.v1 as tf\ntf.nn.dropout(1, keep_prob=1)": ProgramStyle(True, False, False),
    # Written for TensorFlow 2.
    "import tensorflow as tf\ntf.zeros([1], dtype=tf.int32)\nf(keep_dims=1)": ProgramStyle(False, False, False),
    "import tensorflow_addons as tfa, tensorflow as tf\ntfa.f(keep_dims=1)": ProgramStyle(False, False, False),
    "import tensorflow as tf\ntf.compat.v1.logging.set_verbosity(1)": ProgramStyle(
        tf1=False, former=False, settles=False
    ),
    "import tensorflow as tf\ntf.compat.v1.train.GradientDescentOptimizer(1)": ProgramStyle(False, False, False),
    "import tensorflow as tf\nimport tensorflow.compat.v1 as tf1\ntf1.logging": ProgramStyle(False, False, False),
    "from tensorflow.compat.v1 import logging\nlogging.info(1)": ProgramStyle(tf1=False, former=False, settles=False),
    "import tensorflow.compat.v1 as tf\n@tf.function\ndef f(): pass": ProgramStyle(
        tf1=False, former=False, settles=False
    ),
    "import tensorflow as tf\ntf.GradientTape()\ntf.compat.v1.Session": ProgramStyle(False, False, False),
    "from tensorflow.compat.v1 import disable_v2_behavior as f\nf()": ProgramStyle(
        tf1=False, former=False, settles=True
    ),
    "import torch as tf\ntf.Session()": ProgramStyle(tf1=False, former=False, settles=False),
    "": ProgramStyle(tf1=False, former=False, settles=False),
}


@pytest.mark.parametrize("text", STYLES)
def test_the_style_of_a_program(tmp_path: Path, text: str) -> None:
    assert program_style(write(tmp_path, text)) == STYLES[text]


@pytest.mark.parametrize("name", ["helper.py", "package/helper.py", "package/__init__.py"])
def test_the_style_is_that_of_the_modules_beside_it_too(tmp_path: Path, name: str) -> None:
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    program = write(tmp_path, f"def main():\n    import {module}")
    assert program_style(program) == ProgramStyle(False, False, False)
    write(tmp_path, "import program, tensorflow as tf\ntf.placeholder(1)\ntf.disable_v2_behavior()", name)
    assert program_style(program) == ProgramStyle(True, True, True)


@pytest.mark.parametrize("imports", ["from . import net", "from .net import f", "from ..pkg import net"])
def test_the_style_is_that_of_modules_by_relative_names_too(tmp_path: Path, imports: str) -> None:
    write(tmp_path, "", "pkg/__init__.py")
    write(tmp_path, imports, "pkg/train.py")
    program = write(tmp_path, "from pkg import train")
    assert program_style(program) == ProgramStyle(False, False, False)
    write(tmp_path, "import tensorflow as tf\ntf.placeholder(1)", "pkg/net.py")
    assert program_style(program) == ProgramStyle(True, True, False)


def test_a_broken_module_beside_the_program_is_left_to_python(tmp_path: Path) -> None:
    write(tmp_path, "x = = 1", "broken.py")
    program = write(tmp_path, "try:\n    import broken\nexcept SyntaxError:\n    pass")
    assert program_style(program) == ProgramStyle(False, False, False)


def test_the_former_names_are_former() -> None:
    import tensorflow as tf

    for name in sorted(FORMER_NAMES - {"contrib"}):
        *path, last = name.split(".")
        today: object = tf
        v1: object = tf.compat.v1
        for part in path:
            today, v1 = getattr(today, part, None), getattr(v1, part)
        assert hasattr(v1, last)
        assert not hasattr(today, last)
    assert GRAPH_MODE_NAMES < FORMER_NAMES


def test_a_program_that_configures_nothing_has_one_ipu_and_graphcores_rules_under_the_launcher(tmp_path: Path) -> None:
    """As on Graphcore's IPU model, and with a line that says so; without the launcher it is an error."""
    script = tmp_path / "program.py"
    script.write_text(
        "import tensorflow as tf\nimport ipu_tf as ipu\n"
        "print('rules', ipu.config.IPUConfig().graphcore_rules, flush=True)\n"
        "with ipu.scopes.ipu_scope('/device:IPU:0'):\n"
        "    [product] = ipu.ipu_compiler.compile(lambda a, b: a * b, [2.0, 3.0])\n"
        "print('product', float(product))\n"
    )
    ran = python("-m", "ipu_tf", "--stats", str(script), cwd=tmp_path)
    assert "rules True\nproduct 6.0" in ran.stdout
    assert "1 program compiled, 1 execution" in ran.stdout
    assert "nothing is configured: /device:IPU:0 has 1 emulated IPU" in ran.stderr
    alone = python(str(script), cwd=tmp_path)
    assert alone.returncode != 0
    assert "rules False" in alone.stdout
    assert "No device target has been configured" in alone.stderr


def test_null_bytes_are_a_syntax_error(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_bytes(b"x = 1\ny = '\0'\n")
    done = launch("--stats", program, cwd=tmp_path)
    assert done.returncode == 1
    assert f'File "{program}", line 2' in done.stderr
    assert "SyntaxError: source code cannot contain null bytes" in done.stderr


def test_stats_reach_the_user_when_nobody_reads_the_output(tmp_path: Path) -> None:
    program = write(tmp_path, "import os\nos.close(1)\nos.dup2(os.open(os.devnull, os.O_RDONLY), 1)")
    done = launch("--stats", program, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == NOTHING_RAN
