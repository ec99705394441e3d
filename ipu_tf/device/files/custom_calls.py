"""Allow-list of the native functions (XLA custom calls) that an exported program may call, with shape checks.

A custom call of StableHLO names a function that XLA, or a library in this process, has registered. It takes bare
buffers: one whose result is too small for it writes beyond it. So a program from a file is loaded only if each of its
custom calls is one that JAX makes for linear algebra, of the shapes that JAX gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ipu_tf.device.files.exported_module import Array, ExportedOp

_Results = tuple[Array, ...]
_Rule = Callable[[ExportedOp], _Results]

_REAL = {"f32": "f32", "f64": "f64", "complex<f32>": "f32", "complex<f64>": "f64"}
_LETTERS = {"s": "f32", "d": "f64", "c": "complex<f32>", "z": "complex<f64>"}
#: What a setting may be, as ASCII: upper or lower, (non-)unit, (conjugate) transposed, left or right, with vectors.
_SETTINGS = {"uplo": b"UL", "diag": b"NU", "trans_x": b"NTC", "side": b"LR", "mode": b"NVAS"}
_TYPED = 1
"""Of the calling conventions, the one that JAX exports."""


def unknown_calls(operations: Iterable[ExportedOp], platforms: Sequence[str]) -> list[str]:
    """Returns names of a program's forbidden operations: unknown custom calls, and communication with other devices.

    Args:
        operations: the program's.
        platforms: platforms that it may run on, as `jax.export` names them.
    """
    return sorted({op.target or op.name for op in operations if not all(_allowed(op, each) for each in platforms)})


def _allowed(op: ExportedOp, platform: str) -> bool:
    if not op.target:
        return op.name not in _OTHER_DEVICES
    if platform != "cpu":
        return op.target in _ELSEWHERE.get(platform, ())
    rule = _LAPACK.get(op.target)
    if rule is None or op.api != _TYPED or not _settings_known(op):
        return False
    try:
        return bool(op.operands) and op.operands[0].dtype == _dtype_of(op.target) and op.results == rule(op)
    except (IndexError, ValueError):
        return False


def _settings_known(op: ExportedOp) -> bool:
    return all(value in _SETTINGS.get(name, b"") for name, value in op.settings)


def _dtype_of(target: str) -> str:
    return _LETTERS[target.removeprefix("lapack_")[0]]


def _dims(op: ExportedOp) -> tuple[tuple[int, ...], int, int]:
    """Returns leading dimensions, rows and columns of the first operand."""
    *batch, rows, columns = op.operands[0].shape
    return tuple(batch), rows, columns


def _cholesky(op: ExportedOp) -> _Results:
    [matrix] = op.operands
    batch, rows, columns = _dims(op)
    return (matrix, Array("i32", batch)) if rows == columns else ()


def _triangular_solve(op: ExportedOp) -> _Results:
    matrix, right = op.operands
    batch, rows, columns = _dims(op)
    sides = {ord("L"): right.shape[-2], ord("R"): right.shape[-1]}
    fits = rows == columns == sides.get(dict(op.settings).get("side", 0))
    return (right,) if fits and right.shape[:-2] == batch and right.dtype == matrix.dtype else ()


def _qr(op: ExportedOp) -> _Results:
    [matrix] = op.operands
    batch, rows, columns = _dims(op)
    return matrix, Array(matrix.dtype, (*batch, min(rows, columns)))


def _householder_product(op: ExportedOp) -> _Results:
    vectors, factors = op.operands
    batch, rows, columns = _dims(op)
    fits = rows >= columns >= factors.shape[-1] and factors.shape[:-1] == batch and factors.dtype == vectors.dtype
    return (vectors,) if fits else ()


def _eigh(op: ExportedOp) -> _Results:
    [matrix] = op.operands
    batch, rows, columns = _dims(op)
    results = (matrix, Array(_REAL[matrix.dtype], (*batch, rows)), Array("i32", batch))
    return results if rows == columns else ()


def _lu(op: ExportedOp) -> _Results:
    [matrix] = op.operands
    batch, rows, columns = _dims(op)
    return matrix, Array("i32", (*batch, min(rows, columns))), Array("i32", batch)


def _svd(op: ExportedOp) -> _Results:
    [matrix] = op.operands
    batch, rows, columns = _dims(op)
    least = min(rows, columns)
    left, right = (least, least) if dict(op.settings).get("mode") == ord("S") else (rows, columns)
    values = Array(_REAL[matrix.dtype], (*batch, least))
    vectors = (Array(matrix.dtype, (*batch, rows, left)), Array(matrix.dtype, (*batch, right, columns)))
    return matrix, values, *vectors, Array("i32", batch)


def _named(rule: _Rule, name: str, letters: str = "sdcz") -> dict[str, _Rule]:
    return {f"lapack_{letter}{name}_ffi": rule for letter in letters}


_LAPACK: dict[str, _Rule] = {
    **_named(_cholesky, "potrf"),
    **_named(_triangular_solve, "trsm"),
    **_named(_qr, "geqrf"),
    **_named(_householder_product, "orgqr", "sd"),
    **_named(_householder_product, "ungqr", "cz"),
    **_named(_eigh, "syevd", "sd"),
    **_named(_eigh, "heevd", "cz"),
    **_named(_lu, "getrf"),
    **_named(_svd, "gesdd"),
}
_SOLVERS = ("getrf", "geqrf", "orgqr", "potrf", "syevd", "gesvd", "gesvdj")
#: The same on other platforms, by name alone: their libraries check what they are given.
_ELSEWHERE = {
    "cuda": {*(f"cusolver_{name}_ffi" for name in _SOLVERS), "cu_lu_pivots_to_permutation"},
    "rocm": {*(f"hipsolver_{name}_ffi" for name in _SOLVERS), "hip_lu_pivots_to_permutation"},
    "tpu": {"Qr", "ProductOfElementaryHouseholderReflectors", "Eigh", "LuDecomposition"},
}
#: Operations that wait for a host or for other devices: a program of one replica has none of them.
_OTHER_DEVICES = {
    f"stablehlo.{name}"
    for name in (
        *("infeed", "outfeed", "send", "recv", "all_reduce", "all_gather", "all_to_all", "reduce_scatter"),
        *("collective_permute", "collective_broadcast", "partition_id", "replica_id"),
    )
}
