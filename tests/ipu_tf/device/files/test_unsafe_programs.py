"""Executable files from elsewhere: their native calls are checked before anything is compiled or loaded."""

from __future__ import annotations

import dataclasses
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from ipu_tf.device.cache.sealed_file import DamagedFile, read_sealed
from ipu_tf.device.errors import DeviceError
from ipu_tf.device.files import executable_file, exported_module
from ipu_tf.device.files.executable_file import ABOUT, ExportError, contents, write
from ipu_tf.device.files.executable_reading import UnsafeProgram, read
from ipu_tf.device.files.module_parser import ModuleParser, ParserCrashed
from ipu_tf.device.program.program import Program, StraightLinePart
from tests.helpers.archives import archived, members

MATRIX = jax.ShapeDtypeStruct((3, 3), np.dtype(np.float32))
VECTOR = jax.ShapeDtypeStruct((3,), np.dtype(np.float32))
BATCH = jax.ShapeDtypeStruct((2, 4, 3), np.dtype(np.float32))


def program(function: Callable[..., Any], *types: Any) -> Program:
    """A program that calls a function once."""

    def run(live: Any, hidden: Any, elements: Any) -> Any:
        return tuple(jax.tree.leaves(function(*live))), hidden, {}

    slots = tuple(range(len(types)))
    results = tuple(range(len(types), len(types) + len(jax.tree.leaves(jax.eval_shape(function, *types)))))
    return Program("calling", tuple(types), (StraightLinePart(run, slots, results),), results, {})


def forged(path: Path, payload: bytes, **changed: bytes) -> Path:
    """A file whose archive has other members, with checksums that fit."""
    write(path, archived(members(payload) | changed))
    return path


def calling(target: str, result: Any = VECTOR, untyped: str | None = None, **settings: Any) -> bytes:
    """An exported function that calls a native function of this process, and says nothing of it."""

    def run(live: Any, hidden: Any, elements: Any) -> Any:
        version = 4 if untyped is None else 2
        call = jax.ffi.ffi_call(target, result, custom_call_api_version=version, legacy_backend_config=untyped)
        return (jax.tree.leaves(call(live[0], **settings))[0],), hidden, {}

    allowed = [export.DisabledSafetyCheck.custom_call(target)]
    exported = export.export(jax.jit(run), disabled_checks=allowed)((VECTOR,), {}, {})
    return bytes(dataclasses.replace(exported, disabled_safety_checks=()).serialize())


PLAIN = contents(program(lambda x: x * 2, VECTOR))

LINEAR_ALGEBRA: dict[str, tuple[Any, ...]] = {
    "cholesky": (lax.linalg.cholesky, MATRIX),
    "triangular solve, left": (lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True), MATRIX, MATRIX),
    "triangular solve, right": (lambda b, a: lax.linalg.triangular_solve(a, b[0]), BATCH, MATRIX),
    "qr": (lambda x: jnp.linalg.qr(x, mode="raw"), BATCH),
    "householder product": (lambda x: lax.linalg.householder_product(x, x[:, 0]), BATCH),
    "eigh": (lax.linalg.eigh, MATRIX),
    "eigh, complex": (lambda x: lax.linalg.eigh(x + 1j)[1], MATRIX),
    "svd": (jnp.linalg.svd, BATCH),
    "svd, thin": (lambda x: jnp.linalg.svd(x, full_matrices=False), BATCH),
    "svd, values": (lambda x: jnp.linalg.svd(x, compute_uv=False), BATCH),
    "lu": (lax.linalg.lu, BATCH),
    "top k": (lambda x: lax.top_k(x, 2), BATCH),
}


@pytest.mark.parametrize("name", LINEAR_ALGEBRA)
def test_linear_algebra_is_allowed(name: str, tmp_path: Path) -> None:
    function, *types = LINEAR_ALGEBRA[name]
    write(tmp_path / "x", contents(program(function, *types)))
    generator = np.random.default_rng(0)
    values = [np.eye(*t.shape[-2:]) + 0.1 * generator.random(t.shape) for t in types]
    arrays = [jnp.asarray(value, jnp.float32) for value in values]
    [call] = read(tmp_path / "x").functions.values()
    for found, wanted in zip(call.call(tuple(arrays), {}, {})[0], jax.tree.leaves(function(*arrays)), strict=True):
        np.testing.assert_array_equal(found, wanted)


INT = jax.ShapeDtypeStruct((), np.dtype(np.int32))
SMALL = jax.ShapeDtypeStruct((1, 1), np.dtype(np.float32))
UNSAFE: dict[str, bytes] = {
    "oneDNN": calling("__onednn$matmul", untyped="{}"),
    "a native kernel": calling("ipu_tf_filter_gradient", geometry=np.zeros(29, np.int64)),
    "a Python callback": calling("xla_ffi_python_cpu_callback", index=np.uint64(0)),
    "a symbol of the C library": calling("system"),
    "a result that is too small": calling("lapack_sgetrf_ffi", (SMALL, INT, INT)),
    "another calling convention": calling("lapack_sgeqrf_ffi", untyped="x"),
    "an unknown setting": calling("lapack_sgeqrf_ffi", uplo=np.uint8(9)),
    "no such operands": calling("lapack_strsm_ffi"),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_other_native_functions_are_refused(name: str, tmp_path: Path) -> None:
    path = forged(tmp_path / "x", PLAIN, **{"part_0.run": UNSAFE[name]})
    with pytest.raises((UnsafeProgram, DamagedFile)) as caught:
        read(path)
    if isinstance(caught.value, UnsafeProgram):
        assert "known functions of linear algebra" in str(caught.value)


def test_calls_are_refused_on_export_too() -> None:
    def run(x: Any) -> Any:
        return lax.approx_max_k(x, 2)

    with pytest.raises(ExportError, match="ApproxTopK"):
        contents(program(run, VECTOR))


def test_a_program_that_waits_for_other_devices_is_refused(tmp_path: Path) -> None:
    mesh = jax.make_mesh((1,), ("i",))
    spec = jax.sharding.PartitionSpec()

    def run(live: Any, hidden: Any, elements: Any) -> Any:
        summed = jax.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=spec, out_specs=spec)
        return (summed(live[0]),), hidden, {}

    blob = bytes(export.export(jax.jit(run))((VECTOR,), {}, {}).serialize())
    with pytest.raises(UnsafeProgram, match="all_reduce"):
        read(forged(tmp_path / "x", PLAIN, **{"part_0.run": blob}))


def module_of(payload: bytes) -> bytes:
    return export.deserialize(bytearray(members(payload)["part_0.run"])).mlir_module_serialized


def test_modules_of_others_are_parsed_elsewhere_and_written_anew() -> None:
    parser = ModuleParser()
    try:
        operations, module = parser.parsed(module_of(PLAIN))
        with pytest.raises(ValueError, match="deserialize"):
            parser.parsed(module_of(PLAIN)[:-20])
    finally:
        parser.clear()
    assert operations == exported_module.operations(module) == exported_module.operations(module_of(PLAIN))
    assert "stablehlo.multiply" in [each.name for each in operations]


CRASHING = """
import os, sys
sys.path.insert(0, {folder!r})
import exported_module
exported_module._answer = lambda artifact: os.abort() if artifact == b"forged" else ({{"operations": []}}, artifact)
exported_module._serve(5.0)
"""


def test_a_module_that_ends_its_parser_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "script.py"
    script.write_text(CRASHING.format(folder=str(Path(exported_module.__file__).parent)))
    monkeypatch.setattr(exported_module, "__file__", str(script))
    parser = ModuleParser()
    try:
        with pytest.raises(ParserCrashed, match="ends the process that parses it"):
            parser.parsed(b"forged")
        assert parser.parsed(b"honest") == ([], b"honest")
    finally:
        parser.clear()


def test_a_parser_that_does_not_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exported_module, "__file__", str(tmp_path / "missing.py"))
    with pytest.raises(DeviceError, match="ended with status 1"):
        ModuleParser().parsed(b"x")


class Touching:
    """An object whose pickle makes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


def test_weights_are_not_unpickled(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, np.array([Touching(tmp_path / "run")], object), allow_pickle=True)
    payload = contents(program(lambda x: x * 2, VECTOR), {0: np.ones(3, np.float32)})
    for data in (stream.getvalue(), pickle.dumps(Touching(tmp_path / "run"))):
        with pytest.raises(DamagedFile, match="weights/0.npy"):
            read(forged(tmp_path / "x", payload, **{"weights/0.npy": data}))
    assert not (tmp_path / "run").exists()


ABOUTS: dict[str, dict[str, Any]] = {
    "a slot that nothing fills": {"results": [7]},
    "a negative slot": {"results": [-1]},
    "a truth for a slot": {"results": [True]},
    "an object's dtype": {"inputs": [{"name": "x", "shape": [3], "dtype": "object", "place": 0}]},
    "a negative dimension": {"inputs": [{"name": "x", "shape": [-3], "dtype": "float32", "place": 0}]},
    "another format": {"format": 2},
    "an unknown kind of part": {"parts": [{"kind": "shell"}]},
    "a list for a dictionary": {"hidden": []},
    "a function that is not there": {"parts": [{"kind": "straight", "run": "part_9.run", "in": [0], "out": [1]}]},
    "an alias of no parameter": {"aliases": {"0": 5}},
}


@pytest.mark.parametrize("name", ABOUTS)
def test_descriptions_are_checked(name: str, tmp_path: Path) -> None:
    about = json.loads(members(PLAIN)[ABOUT]) | ABOUTS[name]
    with pytest.raises(DamagedFile):
        read(forged(tmp_path / "x", PLAIN, **{ABOUT: json.dumps(about).encode()}))


def test_archives_are_not_unpacked_beyond_their_size(tmp_path: Path) -> None:
    write(tmp_path / "bomb", archived({ABOUT: b" " * 10**8}, zipfile.ZIP_DEFLATED))
    with pytest.raises(DamagedFile, match="neither compressed nor encrypted"):
        read(tmp_path / "bomb")


def test_a_seal_of_another_length_is_not_read_at_all(tmp_path: Path) -> None:
    """A file of a terabyte, nearly all of it a hole."""
    write(tmp_path / "x", PLAIN)
    with open(tmp_path / "x", "r+b") as file:
        file.truncate(2**40)
    with pytest.raises(DamagedFile):
        read_sealed(tmp_path / "x", executable_file.KIND)
