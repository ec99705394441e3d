"""Native filter gradients: their numbers, their bits on any number of cores, where they are used and where not."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from ipu_tf.device import portable
from ipu_tf.device.cache import executable_cache
from ipu_tf.device.convolution.native import library
from ipu_tf.device.convolution.native.filter_gradient import FilterGradient, filter_gradient
from ipu_tf.device.convolution.plan import NATIVE, ONEDNN
from ipu_tf.device.convolution.plans import callable_now, choose, explain, solve
from ipu_tf.device.convolution.problem import CanonicalConvolution
from tests.helpers.exact_sums import small_integers
from tests.helpers.library_jit import jit
from tests.helpers.native_fuzz import fault, faults, operands
from tests.helpers.one_core import hashed_on_one_core, needs_affinity

ROOT = Path(__file__).resolve().parents[4]
FOLDER = ROOT / "ipu_tf" / "device" / "convolution" / "native"
SAME = ((1, 1), (1, 1))
LAYER = CanonicalConvolution(16, 8, 32, (12, 12), (12, 12), (1, 1), SAME, (1, 1), (1, 1), leading_contraction=True)
FORWARD = CanonicalConvolution(8, 16, 16, (12, 12), (3, 3), (1, 1), SAME, (1, 1), (1, 1))
#: Large enough for slices and bands, a tail of features, and units at the edges.
LARGE = FilterGradient(6, 19, 37, 1, (24, 24), (3, 3), (24, 24), (1, 1), (1, 1), (1, 1))
DEPTHWISE = FilterGradient(6, 40, 40, 40, (24, 24), (5, 5), (12, 12), (2, 2), (1, 1), (1, 1))
#: Windows of one position, whose blocks have more channels: 12, 8, 4, 3 of 27.
ONE_TAP = FilterGradient(9, 27, 40, 1, (20, 20), (1, 1), (20, 20), (1, 1), (1, 1), (0, 0))
#: Small images whose sums are large: bands rather than slices.
WIDE = FilterGradient(16, 70, 130, 1, (3, 3), (3, 3), (3, 3), (1, 1), (1, 1), (1, 1))
LONG = FilterGradient(16, 3, 24, 1, (900,), (9,), (446,), (2,), (1,), (0,))

built = pytest.mark.skipif(
    library.built() is None, reason="no native library: `python setup.py build_ext --inplace` builds it"
)


def arrays(problem: CanonicalConvolution) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    shapes = (problem.input_shape, problem.kernel_shape)
    return tuple(jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes)  # type: ignore[return-value]


def lowered() -> str:
    """The program of a filter gradient by the best plan."""
    return jit(lambda a, b: solve(a, b, LAYER)).lower(*arrays(LAYER)).as_text()


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_an_installed_package_has_the_library_where_there_is_a_compiler() -> None:
    try:
        importlib.metadata.distribution("ipu_tf")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is not installed, its folder is only on the path")
    assert library.built() is not None


@built
def test_random_filter_gradients_against_float64() -> None:
    assert faults(cases=12, seed=0) == []


@built
@pytest.mark.parametrize(
    "shapes",
    [LARGE, DEPTHWISE, ONE_TAP, WIDE, LONG],
    ids=["dense", "depthwise", "one tap", "wide", "long axis"],
)
def test_filter_gradients_of_several_parts(shapes: FilterGradient) -> None:
    slices, bands = shapes.partition()
    assert slices * bands > 1
    assert fault(shapes, np.random.default_rng(0)) is None


def hashed() -> str:
    """A hash of the bits of some filter gradients."""
    made = hashlib.sha256()
    for shapes in (LARGE, DEPTHWISE):
        x, g = operands(shapes, np.random.default_rng(0))
        for result in jit(lambda x, g, shapes=shapes: filter_gradient(x, g, shapes, bias=True))(x, g):
            made.update(np.asarray(result).tobytes())
    return made.hexdigest()


@built
@needs_affinity
def test_the_same_bits_on_one_core_as_on_all() -> None:
    assert hashed_on_one_core("tests.ipu_tf.device.convolution.test_native") == hashed()
    assert len({hashed() for _ in range(5)}) == 1


@built
def test_the_best_plan_of_a_filter_gradient() -> None:
    assert choose(LAYER, frozenset({NATIVE})).name == "native filter gradient"
    assert choose(LAYER).name != "native filter gradient"
    assert library.FILTER_GRADIENT in lowered()
    assert all("native kernels, " in explain(each).splitlines()[-1] for each in (LAYER, FORWARD))


@built
def test_the_best_plan_of_a_window_of_one_position() -> None:
    layer = CanonicalConvolution(16, 64, 384, (6, 6), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1))
    assert choose(layer, frozenset({NATIVE, ONEDNN})).name == "native product"
    assert choose(dataclasses.replace(layer, input=(48, 48)), frozenset({NATIVE, ONEDNN})).name != "native product"
    assert choose(dataclasses.replace(layer, out_features=2), frozenset({NATIVE})).name != "native product"


@built
@pytest.mark.parametrize(("images", "size", "features"), [(16, 12, (512, 128)), (3, 7, (96, 40))])
def test_filter_gradients_of_one_position_over_small_images_are_products(
    images: int, size: int, features: tuple[int, int]
) -> None:
    each = ((size, size), (size, size), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1))
    gradient = CanonicalConvolution(features[0], images, features[1], *each, leading_contraction=True)
    assert choose(gradient, frozenset({NATIVE, ONEDNN})).name == "native product gradient"
    assert choose(gradient.but(batch=16), frozenset({NATIVE})).name != "native product gradient"
    assert choose(gradient.but(input=(48, 48), window=(48, 48)), frozenset({NATIVE})).name != "native product gradient"
    x, g = small_integers(*gradient.input_shape), small_integers(*gradient.kernel_shape, seed=1)
    program = jit(lambda x, g: solve(x, g, gradient))
    assert library.MATRIX_PRODUCT in program.lower(x, g).as_text()
    np.testing.assert_array_equal(program(x, g)[:, 0, 0], np.einsum("cxyn,xynf->cf", x, g))


@built
def test_the_environment_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPU_TF_NATIVE", "0")
    assert NATIVE not in callable_now()
    assert library.FILTER_GRADIENT not in lowered()
    assert all("IPU_TF_NATIVE is 0" in explain(each) for each in (LAYER, FORWARD))
    monkeypatch.setenv("IPU_TF_NATIVE", "yes")
    with pytest.raises(ValueError, match="IPU_TF_NATIVE must be 0 or 1. Received: 'yes'"):
        lowered()


def test_without_the_library_other_plans_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "loaded", lambda: None)
    assert NATIVE not in callable_now()
    assert library.FILTER_GRADIENT not in lowered()
    assert all("without a C compiler (GCC 11 or newer, or Clang)" in explain(each) for each in (LAYER, FORWARD))
    x, g = map(jnp.asarray, operands(LARGE, np.random.default_rng(0)))
    with pytest.raises(RuntimeError, match="wanted the native library; received: there are no native kernels"):
        filter_gradient(x, g, LARGE)


@built
def test_exported_programs_do_without() -> None:
    function = portable.portable(lambda a, b: solve(a, b, LAYER))
    exported = export.export(jax.jit(function))(*arrays(LAYER))
    assert library.FILTER_GRADIENT not in exported.mlir_module()


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """The folder of an executable cache that is on, so that oneDNN is not called."""
    executable_cache.use(str(tmp_path / "cache"))
    yield tmp_path / "cache"
    executable_cache.use("")


@built
def test_programs_with_it_are_kept_and_found_by_the_build_that_made_them(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another build, or none, compiles a program of its own."""

    def run() -> bool:
        function = jit(lambda a, b: [solve(a, b, LAYER)])
        compiled = executable_cache.compile_cached(
            function.lower(*arrays(LAYER)), cache, tuple(jax.local_devices()[:1])
        )
        np.testing.assert_allclose(compiled.function(*arrays(LAYER))[0], expected, rtol=1e-4, atol=1e-4)
        return compiled.loaded

    with portable.without_native_code():
        expected = solve(*arrays(LAYER), LAYER)
    assert [run(), run()] == [False, True]
    monkeypatch.setenv("IPU_TF_NATIVE", "0")
    assert [run(), run()] == [False, True]
    monkeypatch.delenv("IPU_TF_NATIVE")
    file = tmp_path / "other build.so"
    path = library.built()
    assert path is not None
    file.write_bytes(path.read_bytes() + b"\0")
    monkeypatch.setattr(library, "built", lambda: file)
    monkeypatch.setattr(library, "loaded", library.loaded.__wrapped__)
    assert [run(), run()] == [False, True]
    assert len(list(cache.glob("*.emulated.poplar_exec"))) == 3


@built
def test_buffers_of_another_shape_are_refused() -> None:
    """The kernel does not read or write beyond what it is given."""
    native = library.loaded()
    assert native is not None
    x, g = operands(LARGE, np.random.default_rng(0))
    filters = jax.ShapeDtypeStruct((3, 3, 19, 37), np.float32)
    room = jax.ShapeDtypeStruct((LARGE.room(),), np.float32)
    for change, message in (
        (lambda: (x[1:], g, filters, room, LARGE.words(2)), "x is not of the geometry's shape"),
        (lambda: (x, g[1:], filters, room, LARGE.words(2)), "g is not of the geometry's shape"),
        (lambda: (x, g, room, room, LARGE.words(2)), "the filters are not of the geometry's shape"),
        (lambda: (x, g, filters, filters, LARGE.words(2)), "too little room for sums"),
        (lambda: (x, g, filters, room, LARGE.words(2)[1:]), "geometry is of another version"),
    ):
        left, right, result, scratch, words = change()
        call = jax.ffi.ffi_call(native.target(library.FILTER_GRADIENT), (result, scratch))
        with pytest.raises(jax.errors.JaxRuntimeError, match=message):
            jax.block_until_ready(jit(lambda a, b, call=call, words=words: call(a, b, geometry=words))(left, right))


#: What `xla_ffi.h` declares, as jaxlib's header names it.
SAME_STRUCTS = {
    "FfiExtension": ("XLA_FFI_Extension_Base", {"type": "type", "next": "next"}),
    "FfiVersion": ("XLA_FFI_Api_Version", {"major": "major_version", "minor": "minor_version"}),
    "FfiMetadata": ("XLA_FFI_Metadata", {"version": "api_version", "traits": "traits"}),
    "FfiMetadataExtension": ("XLA_FFI_Metadata_Extension", {"metadata": "metadata"}),
    "FfiBuffer": ("XLA_FFI_Buffer", {"dtype": "dtype", "data": "data", "rank": "rank", "dims": "dims"}),
    "FfiArray": ("XLA_FFI_Array", {"dtype": "dtype", "size": "size", "data": "data"}),
    "FfiAttributes": ("XLA_FFI_Attrs", {"size": "size", "types": "types", "each": "attrs"}),
    "FfiErrorCreate": ("XLA_FFI_Error_Create_Args", {"message": "message", "code": "errc"}),
    "FfiErrorDestroy": ("XLA_FFI_Error_Destroy_Args", {"error": "error"}),
    "FfiSchedule": ("XLA_FFI_ThreadPool_Schedule_Args", {"context": "ctx", "task": "task", "data": "data"}),
    "FfiThreads": ("XLA_FFI_ThreadPool_NumThreads_Args", {"context": "ctx", "count": "num_threads"}),
    "FfiCall": (
        "XLA_FFI_CallFrame",
        {name: name for name in ("api", "stage")}
        | {"context": "ctx", "arguments": "args", "results": "rets", "attributes": "attrs"},
    ),
    "FfiApi": (
        "XLA_FFI_Api",
        {
            "version": "api_version",
            "error_create": "XLA_FFI_Error_Create",
            "error_destroy": "XLA_FFI_Error_Destroy",
            "schedule": "XLA_FFI_ThreadPool_Schedule",
            "threads": "XLA_FFI_ThreadPool_NumThreads",
        },
    ),
}
SAME_NUMBERS = {
    "FFI_MAJOR": "XLA_FFI_API_MAJOR",
    "FFI_MINOR": "XLA_FFI_API_MINOR",
    "FFI_STAGE_EXECUTE": "XLA_FFI_ExecutionStage_EXECUTE",
    "FFI_EXTENSION_METADATA": "XLA_FFI_Extension_Metadata",
    "FFI_FLOAT32": "XLA_FFI_DataType_F32",
    "FFI_FLOAT64": "XLA_FFI_DataType_F64",
    "FFI_UINT8": "XLA_FFI_DataType_U8",
    "FFI_INT8": "XLA_FFI_DataType_S8",
    "FFI_INT32": "XLA_FFI_DataType_S32",
    "FFI_INT64": "XLA_FFI_DataType_S64",
    "FFI_INVALID_ARGUMENT": "XLA_FFI_Error_Code_INVALID_ARGUMENT",
}


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_declared_interface_is_that_of_jaxlib(tmp_path: Path) -> None:
    """Offsets and numbers, compared by the compiler."""
    same = [f"{ours} == (int){theirs}" for ours, theirs in SAME_NUMBERS.items()]
    same += [
        f"offsetof({ours}, {member}) == offsetof({theirs}, {other})"
        for ours, (theirs, members) in SAME_STRUCTS.items()
        for member, other in members.items()
    ]
    for ours, theirs in (("arguments", "XLA_FFI_Args, args"), ("results", "XLA_FFI_Rets, rets")):
        same.append(f"offsetof(FfiCall, {ours}.each) - offsetof(FfiCall, {ours}) == offsetof({theirs})")
    lines = ['#include "xla_ffi.h"', '#include "xla/ffi/api/c_api.h"', *(f'_Static_assert({s}, "{s}");' for s in same)]
    source = tmp_path / "same.c"
    source.write_text("\n".join(lines) + "\n")
    folders = [f"-I{FOLDER}", f"-I{jax.ffi.include_dir()}"]
    ran = subprocess.run(["cc", "-fsyntax-only", *folders, str(source)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


OF_OLDER_COMPILERS = """
#include "shuffled.h"
typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
int main(void) {
  const Four a = {0, 1, 2, 3}, b = {4, 5, 6, 7}, c = SHUFFLED(a, b, 6, 1, 4, 3);
  return !(c[0] == 6 && c[1] == 1 && c[2] == 4 && c[3] == 3);
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_gcc_11_has_another_builtin_for_lanes_of_vectors(tmp_path: Path) -> None:
    """It is used nowhere but there, and there as that version of GCC takes it."""
    assert [path.name for path in FOLDER.glob("*.[ch]") if "__builtin_shuffle" in path.read_text()] == ["shuffled.h"]
    source, program = tmp_path / "older.c", tmp_path / "older"
    source.write_text(OF_OLDER_COMPILERS)
    as_gcc_11 = ["-U__GNUC__", "-D__GNUC__=11"]
    subprocess.run(["cc", *as_gcc_11, f"-I{FOLDER}", str(source), "-o", str(program)], check=True)
    subprocess.run([str(program)], check=True)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_compilers_that_are_too_old_are_told_what_is_needed() -> None:
    if b"clang" in subprocess.run(["cc", "--version"], capture_output=True, check=True).stdout:
        pytest.skip("any Clang is new enough")
    command = ["cc", "-fsyntax-only", "-U__GNUC__", "-D__GNUC__=10", str(FOLDER / "rounding.c")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode and library.NEEDED in ran.stderr
