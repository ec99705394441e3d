"""Table of every file format that the project reads: a writer, a reader, and the expected contents.

A `.forged` format has its members or its payload changed and the checksums made to fit, as only a forger can: what it
says may then be another thing than was written, but reading it neither crashes nor runs code.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf import reports
from ipu_tf._data.array_files import read_arrays, write_arrays
from ipu_tf.config import IpuOptions
from ipu_tf.device.cache.executable_cache import CachedFunction
from ipu_tf.device.cache.sealed_file import write_sealed
from ipu_tf.device.files import executable_about
from ipu_tf.device.files.embedded_engine import EmbeddedEngine
from ipu_tf.device.files.executable_file import ABOUT, contents, write
from ipu_tf.device.files.executable_reading import about_text, read
from ipu_tf.device.program.program import Program, StraightLinePart
from ipu_tf.poplar.driver.trace_pb2 import IpuTraceEvent
from ipu_tf.reports import Category, Operation, Part, Report, Value
from tests.helpers import keras_files
from tests.helpers.archives import archived, members
from tests.helpers.file_mutations import mutated

FLOATS = jax.ShapeDtypeStruct((3,), np.dtype(np.float32))
REFUSALS = (ValueError, RuntimeError, OSError)
"""Errors that a bad file may raise: those of the device are of these classes. Nothing else reaches the user."""


@dataclasses.dataclass(frozen=True)
class Format:
    """A file format.

    Attributes:
        files: whole files of it, given a folder to write in.
        result: what a file's bytes give, in a form that can be compared, given a path to write them to.
        change: damages a file, given another one of its kind.
        exact: whether a file that is read gives what was written. Otherwise it may give what it says.
        keyed: whether a whole file under another's name may not be used either.
        refusals: the exceptions that a bad file may raise.
    """

    files: Callable[[Path], Sequence[bytes]]
    result: Callable[[bytes, Path], Any]
    change: Callable[[bytes, bytes, np.random.Generator], bytes] = mutated
    exact: bool = True
    keyed: bool = False
    refusals: tuple[type[Exception], ...] = REFUSALS


def _scaled(directory: Path, factor: float) -> CachedFunction:
    return CachedFunction(lambda x: x * factor, (), directory)


def _cache_files(folder: Path) -> list[bytes]:
    for factor in (2.0, 3.0):
        _scaled(folder, factor)(jnp.ones(3))
    return [_entry(folder, factor).read_bytes() for factor in (2.0, 3.0)]


@functools.cache
def _entry(folder: Path, factor: float) -> Path:
    """The entry of a program: a cache of its own tells the name."""
    alone = folder / f"alone_{factor}"
    alone.mkdir(exist_ok=True)
    _scaled(alone, factor)(jnp.ones(3))
    [path] = alone.iterdir()
    return folder / path.name


def _cache_result(data: bytes, path: Path) -> Any:
    """A bad entry is never noticed but for the time: the program is compiled."""
    entry = _entry(path.parent, 2.0)
    entry.write_bytes(data)
    found = _scaled(path.parent, 2.0)(jnp.asarray([1.0, 2, 3], jnp.float32)).tolist()
    again = _scaled(path.parent, 2.0)
    again(jnp.ones(3))
    return [found, again.take_compiled()]


def _program(factor: float) -> bytes:
    def run(live: Any, hidden: Any, elements: Any) -> Any:
        return (live[0] + 1,), hidden, {"out": (elements["in"][0] * factor * live[1],)}

    feeds = {"in": (FLOATS,)}, {"out": (FLOATS,)}
    part = StraightLinePart(run, (0, 1), (2,), *feeds)
    program = Program("scaled", (FLOATS, FLOATS), (part,), (2,), {0: 0})
    return contents(program, {1: np.full(3, 2, np.float32)})


def _executable_files(folder: Path) -> list[bytes]:
    for factor in (2.0, 3.0):
        write(folder / str(factor), _program(factor))
    return [(folder / str(factor)).read_bytes() for factor in (2.0, 3.0)]


def _executable_result(data: bytes, path: Path) -> Any:
    path.write_bytes(data)
    about_text(path)
    engine = EmbeddedEngine(read(path), [np.zeros(3, np.float32)])
    return [np.asarray(row).tolist() for row in engine.call([np.arange(3, dtype=np.float32)])]


def _resealed(data: bytes, other: bytes, generator: np.random.Generator, functions: bool = False) -> bytes:
    """A file whose members are damaged, or its functions, in a seal that fits."""
    start = data.index(b"\n") + 1
    payload = _rezipped(data[start:], other[other.index(b"\n") + 1 :], generator, functions)
    with tempfile.TemporaryDirectory() as folder:
        write_sealed(Path(folder) / "sealed", "executable", payload)
        return (Path(folder) / "sealed").read_bytes()


def _rezipped(data: bytes, other: bytes, generator: np.random.Generator, functions: bool = False) -> bytes:
    """An archive one of whose members is damaged, or under another's name, with checksums that fit."""
    mine, others = members(data), members(other)
    names = [name for name in mine if name.endswith(".run") == functions]
    name = names[int(generator.integers(len(names)))]
    mine[name] = mutated(mine[name], others[name], generator)
    return archived(mine)


def _array_files(folder: Path) -> list[bytes]:
    for seed in (1, 2):
        generator = np.random.default_rng(seed)
        arrays = {"w": generator.random((3, 4), np.float32), "v": generator.random((3, 4), np.float32)}
        write_arrays(folder / str(seed), {**arrays, "b": generator.random(5).astype(jnp.bfloat16)})
    return [(folder / str(seed)).read_bytes() for seed in (1, 2)]


def _array_result(data: bytes, path: Path) -> Any:
    path.write_bytes(data)
    return {name: [array.dtype.name, array.astype(float).tolist()] for name, array in read_arrays(path).items()}


def _about_files(folder: Path) -> list[bytes]:
    return [members(_program(factor))[ABOUT] for factor in (2.0, 3.0)]


def _about_result(data: bytes, path: Path) -> Any:
    return repr(executable_about.signature_of(executable_about.parsed(data)))


def _event_files(folder: Path) -> list[bytes]:
    return [IpuTraceEvent(kind, 1.5 * kind, kind).SerializeToString() for kind in (2, 5)]


def _event_result(data: bytes, path: Path) -> Any:
    return repr(IpuTraceEvent.FromString(data))


def _option_files(folder: Path) -> list[bytes]:
    return [IpuOptions().SerializeToString()] * 2


def _option_result(data: bytes, path: Path) -> Any:
    return json.dumps(IpuOptions.FromString(data).to_dict())


def _report(name: str) -> Report:
    kept = {Category.WEIGHTS: 400, Category.TEMPORARIES: 40}
    operation = Operation(f"{name}/dot_general", kept, 40, 3, (), (), 200.0, 800)
    value = Value(f"{name}/kernel", Category.WEIGHTS, 400, 0, 0)
    return Report(name, 2, (Part("loop", (operation,), (value,)),))


def _report_files(folder: Path) -> list[bytes]:
    for name in ("dense", "other"):
        reports.save(_report(name), folder / name)
    return [(folder / name).read_bytes() for name in ("dense", "other")]


def _report_result(data: bytes, path: Path) -> Any:
    path.write_bytes(data)
    return str(reports.load(path))


def _forged_report(data: bytes, other: bytes, generator: np.random.Generator) -> bytes:
    """A report whose JSON is damaged, in a seal that fits."""
    text, others = (zlib.decompress(each[each.index(b"\n") + 1 :]) for each in (data, other))
    with tempfile.TemporaryDirectory() as folder:
        write_sealed(Path(folder) / "sealed", "report", zlib.compress(mutated(text, others, generator)))
        return (Path(folder) / "sealed").read_bytes()


FORMATS: dict[str, Format] = {
    "cache": Format(_cache_files, _cache_result, keyed=True),
    "executable": Format(_executable_files, _executable_result),
    "executable.forged": Format(_executable_files, _executable_result, _resealed, exact=False),
    "executable.functions": Format(
        _executable_files, _executable_result, functools.partial(_resealed, functions=True), exact=False
    ),
    "arrays": Format(_array_files, _array_result),
    "arrays.forged": Format(_array_files, _array_result, _rezipped),
    "about": Format(_about_files, _about_result, exact=False),
    "report": Format(_report_files, _report_result),
    "report.forged": Format(_report_files, _report_result, _forged_report, exact=False),
    "trace": Format(_event_files, _event_result, exact=False),
    "keras": Format(keras_files.files, keras_files.result, keras_files.damaged, exact=False),
    "keras.assets": Format(
        functools.partial(keras_files.files, subclassed=True),
        keras_files.result,
        functools.partial(keras_files.damaged_member, only="ipu_options.json"),
        exact=False,
    ),
    "options": Format(_option_files, _option_result, exact=False, refusals=(*REFUSALS, TypeError)),
}
