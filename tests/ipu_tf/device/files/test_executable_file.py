"""Executable files: run with JAX alone; other files are refused."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ipu_tf as ipu
from ipu_tf.device.cache.sealed_file import DamagedFile, ForeignFile, write_sealed
from ipu_tf.device.files import executable_file, saved_programs
from ipu_tf.device.files.embedded_engine import EmbeddedEngine, NoOutput
from ipu_tf.device.files.executable_file import ExportError, contents, write
from ipu_tf.device.files.executable_reading import read
from ipu_tf.device.memory.hidden_state import ITERATION, ITERATION_TYPE
from ipu_tf.device.program.program import LoopPart, Program, StraightLinePart
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]

FLOATS = jax.ShapeDtypeStruct((3,), np.dtype(np.float32))
NUMBER = jax.ShapeDtypeStruct((), np.dtype(np.int32))

#: Runs a file as the docstring of `executable_file` says, with JAX alone, on elements 1, 2, 3, ...
PLAIN_JAX = """
import itertools, json, sys, zipfile
import jax, jax.numpy as jnp, numpy as np
path, slots, numbers, given = sys.argv[1], {}, itertools.count(1), []
archive = zipfile.ZipFile(path)
about = json.loads(archive.read("executable.json"))
call = lambda name, *args: jax.export.deserialize(bytearray(archive.read(name))).call(*args)
types = {t["place"]: t for t in about["streamed_inputs"]}
element = lambda q: (jnp.full(types[q]["shape"], next(numbers), types[q]["dtype"]),)
slots = {int(i): np.load(archive.open(name)) for i, name in about["weights"].items()}
slots |= {t["place"]: jnp.ones(t["shape"], t["dtype"]) for t in about["inputs"]}
hidden = {key: jnp.zeros(t["shape"], t["dtype"]) for key, t in about["hidden"].items()}
for part in about["parts"]:
    read = lambda names: tuple(slots[i] for i in part[names])
    if part["kind"] == "straight":
        out, hidden, enqueued = call(part["run"], read("in"), hidden, {q: element(q) for q in part["infeeds"]})
        given.append(enqueued)
    else:
        out, constants = read("in"), read("constants")
        while call(part["goes_on"], out, constants):
            elements = {q: element(q) for q in part["infeeds"]}
            out, hidden, enqueued = call(part["step"], out, constants, hidden, elements)
            given.append(enqueued)
    slots.update(zip(part["out"], out))
results = [np.asarray(slots[i]).tolist() for i in about["results"]]
elements = [np.asarray(array).tolist() for each in given for element in each.values() for array in element]
print("RESULT", json.dumps([results, elements, sorted(m for m in sys.modules if m in ("tensorflow", "ipu_tf"))]))
"""


def loop_program(name: str = "loop") -> Program:
    """Adds up elements, four at a time, starting from parameter 0; gives each sum times the iteration's number."""

    def step(carry: Any, constants: Any, hidden: Any, elements: Any) -> Any:
        index, total = carry
        total = total + elements["in"][0] * constants[0]
        return (index + 1, total), hidden, {"out": (total * hidden[ITERATION],)}

    loop = LoopPart(
        step=step,
        goes_on=lambda carry, constants: carry[0] < 4,
        trip_count=lambda carry: 4,
        carry_in=(2, 0),
        constants=(1,),
        carry_out=(None, 3),
        infeeds={"in": (FLOATS,)},
        outfeeds={"out": (FLOATS,)},
    )
    start = StraightLinePart(lambda live, hidden, elements: ((jnp.int32(0),), hidden, {}), (), (2,))
    return Program(name, (FLOATS, FLOATS), (start, loop), (3,), {0: 0}, {ITERATION: ITERATION_TYPE})


def saved(tmp_path: Path, program: Program, **more: Any) -> Path:
    """A program as a file."""
    path = tmp_path / f"{program.name}{executable_file.SUFFIX}"
    write(path, contents(program, **more))
    return path


def test_jax_alone_runs_it(tmp_path: Path) -> None:
    path = saved(tmp_path, loop_program(), weights={1: np.full(3, 2, np.float32)})
    done = subprocess.run([sys.executable, "-c", PLAIN_JAX, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results, elements, modules = json.loads(done.stdout.split("RESULT ")[1])
    assert results == [[21.0] * 3]
    assert elements == [[0.0] * 3, [7.0] * 3, [26.0] * 3, [63.0] * 3]
    assert modules == []


def test_the_signature_tells_inputs_from_weights(tmp_path: Path) -> None:
    path = saved(tmp_path, loop_program(), weights={1: np.ones(3, np.float32)}, names={0: "start"})
    signature = read(path).signature
    assert [(t.name, t.shape, t.dtype, t.place) for t in signature.inputs] == [("start", (3,), "float32", 0)]
    assert [t.place for t in signature.streamed_inputs] == ["in"]
    assert [t.place for t in signature.streamed_outputs] == ["out"]
    assert [t.struct for t in signature.outputs] == [FLOATS]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "uint8", "bool", "int32"])
def test_weights_keep_their_bits(dtype: str, tmp_path: Path) -> None:
    struct = jax.ShapeDtypeStruct((2, 2), jnp.dtype(dtype))
    value = np.asarray(jnp.array([[0, 1], [1, 0]], dtype))
    part = StraightLinePart(lambda live, hidden, elements: (live, hidden, {}), (0,), (1,))
    path = saved(tmp_path, Program("same", (struct,), (part,), (1,), {}), weights={0: value})
    weights = read(path).weights
    assert weights[0].dtype == value.dtype
    assert weights[0].tobytes() == value.tobytes()


def test_equal_programs_give_equal_files() -> None:
    first, second = [contents(loop_program()) for _ in range(2)]
    assert first == second


def test_an_engine_goes_through_the_program_call_by_call(tmp_path: Path) -> None:
    file = read(saved(tmp_path, loop_program(), weights={1: np.ones(3, np.float32)}))
    engine = EmbeddedEngine(file, [np.zeros(3, np.float32)])
    with device_work() as work:
        elements = [float(engine.call([np.full(3, number, np.float32)])[0][0]) for number in range(1, 9)]
    # The variable keeps its value where the loop starts anew, and iterations are counted from 0 again.
    assert elements == [0, 3, 12, 30, 0, 21, 56, 108]
    assert work.counts.executions == 8


def test_an_engine_needs_an_output_for_each_element(tmp_path: Path) -> None:
    silent = StraightLinePart(lambda live, hidden, elements: ((), hidden, {}), (), (), {"in": (FLOATS,)}, {})
    file = read(saved(tmp_path, Program("silent", (), (silent,), (), {})))
    with pytest.raises(NoOutput, match="one element for each element"):
        EmbeddedEngine(file, []).call([np.zeros(3, np.float32)])
    idle = StraightLinePart(lambda live, hidden, elements: (live, hidden, {}), (0,), (1,))
    file = read(saved(tmp_path, Program("idle", (FLOATS,), (idle,), (1,), {})))
    with pytest.raises(NoOutput, match="without taking anything from an infeed"):
        EmbeddedEngine(file, [np.zeros(3, np.float32)]).call([])


@pytest.mark.parametrize(
    ("change", "text"),
    [({"replicas": 2}, "has 2 replicas"), ({"uses_callbacks": True}, "calls back to this process")],
)
def test_what_a_file_cannot_hold(change: dict[str, Any], text: str) -> None:
    part = StraightLinePart(lambda live, hidden, elements: (live, hidden, {}), (0,), (1,))
    with pytest.raises(ExportError, match=text):
        contents(Program("odd", (FLOATS,), (part,), (1,), {}, **change))


def test_a_callback_that_nobody_told_of_cannot_be_exported() -> None:
    def run(live: Any, hidden: Any, elements: Any) -> Any:
        jax.debug.callback(lambda value: None, live[0])
        return live, hidden, {}

    with pytest.raises(ExportError, match="JAX cannot export it"):
        contents(Program("calling", (FLOATS,), (StraightLinePart(run, (0,), (1,)),), (1,), {}))


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("model.popef", b"\0\1\2 anything at all", "is a PopEF file"),
        ("model.bin", b"PopEF\0\0\0", "is a PopEF file"),
        ("model.poplar_exec", b"\x7fELF", "is no file of ipu_tf"),
        ("empty", b"", "is no file of ipu_tf"),
    ],
)
def test_files_of_others_are_refused(name: str, data: bytes, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ForeignFile, match=text) as caught:
        read(tmp_path / name)
    assert "code for IPU hardware" in str(caught.value)


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    write_sealed(tmp_path / "x", "compiled", b"1")
    with pytest.raises(ForeignFile, match="must hold: ipu_tf executable, version 1. Received: compiled, version 1"):
        read(tmp_path / "x")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10**6), change=st.integers(1, 255), cut=st.booleans())
def test_damaged_files_are_refused(place: int, change: int, cut: bool, tmp_path: Path) -> None:
    path = tmp_path / "whole"
    if not path.exists():
        write(path, contents(loop_program()))
    whole = path.read_bytes()
    place %= len(whole)
    bad = whole[:place] if cut else whole[:place] + bytes([whole[place] ^ change]) + whole[place + 1 :]
    (tmp_path / "bad").write_bytes(bad)
    with pytest.raises((DamagedFile, ForeignFile)):
        read(tmp_path / "bad")


def test_programs_are_saved_as_they_are_compiled(strategy: Any, tmp_path: Path) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.serialization_output_folder = str(tmp_path / "new")
    config.configure_ipu_system()
    double = tf.function(lambda x: x * 2)
    for _ in range(2):
        strategy.run(double, [tf.constant([1.0, 2.0])])
    [path] = (tmp_path / "new").iterdir()
    assert path.suffix == executable_file.SUFFIX
    assert [t.shape for t in read(path).signature.inputs] == [(2,)]
    ipu.config.reset_ipu_configuration()
    config.serialization_output_folder = ""
    config.configure_ipu_system()
    strategy.run(tf.function(lambda x: x * 3), [tf.constant([1.0, 2.0])])
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_what_cannot_be_saved_is_told_of_and_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    saved_programs.use(str(tmp_path))
    part = StraightLinePart(lambda live, hidden, elements: (live, hidden, {}), (0,), (1,))
    saved_programs.save(Program("odd", (FLOATS,), (part,), (1,), {}, replicas=2), set())
    saved_programs.use("")
    assert "'odd' is not saved" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_the_first_line_says_what_it_is(tmp_path: Path) -> None:
    path = saved(tmp_path, loop_program())
    line = io.BytesIO(path.read_bytes()).readline().decode()
    assert line.startswith("ipu_tf executable 1 sha256=")
    assert line.endswith("(emulated IPU: no popef, no IPU can run it)\n")


@pytest.fixture(autouse=True)
def nothing_saved() -> Iterator[None]:
    """No test leaves programs to be saved."""
    yield
    saved_programs.use("")
