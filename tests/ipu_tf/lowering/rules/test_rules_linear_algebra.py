"""Factorisations, triangular systems and Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.lowering_parity import Case, TextCase, lowered, ops_of, run_module

rng = np.random.default_rng(0)
A = rng.normal(size=(2, 4, 4)).astype(np.float32)
SPD = (A @ np.swapaxes(A, 1, 2) + 4 * np.eye(4)).astype(np.float32)
HERMITIAN = (SPD + 1j * (A - np.swapaxes(A, 1, 2))).astype(np.complex64)
B = rng.normal(size=(2, 4, 3)).astype(np.float32)
TALL, WIDE = rng.normal(size=(5, 3)).astype(np.float32), rng.normal(size=(3, 5)).astype(np.float32)
Z = (A + 1j * A[::-1]).astype(np.complex64)
VOLUME = rng.normal(size=(2, 3, 4, 6)).astype(np.float32)
FFT, SOLVE, QR = ("stablehlo.fft",), ("stablehlo.triangular_solve",), ("@Qr", "stablehlo.get_tuple_element")

CASES = [
    Case("cholesky", tf.linalg.cholesky, (SPD,), ("stablehlo.cholesky",)),
    Case("cholesky of complex", tf.linalg.cholesky, (HERMITIAN,), ("stablehlo.cholesky",)),
    Case("logdet", tf.linalg.logdet, (SPD,), ("stablehlo.cholesky",)),
    Case("solve", tf.linalg.solve, (SPD, B), QR, 1e-4),
    Case("inverse", tf.linalg.inv, (SPD,), (*QR, "@ProductOfElementaryHouseholderReflectors"), 1e-4),
    Case("least squares", tf.linalg.lstsq, (SPD, B), ("stablehlo.cholesky",), 1e-4),
    Case("expm", tf.linalg.expm, (A * 0.1,), QR, 1e-4),
    Case("eigenvalues", tf.linalg.eigvalsh, (SPD,), ("@Eigh",), 1e-4),
    Case("singular values", lambda x: tf.linalg.svd(x, compute_uv=False), (B,), (), 1e-4),
    Case("pseudo-inverse", tf.linalg.pinv, (TALL,), (), 1e-4),
    Case("norm", tf.linalg.norm, (A,), ()),
    Case("fft", tf.signal.fft, (Z,), FFT),
    Case("ifft", tf.signal.ifft, (Z,), FFT),
    Case("fft2d", tf.signal.fft2d, (Z,), FFT),
    Case("rfft", tf.signal.rfft, (VOLUME,), FFT),
    Case("irfft", lambda z: tf.signal.irfft(z, [5]), (Z,), FFT),
    Case("rfft2d", tf.signal.rfft2d, (VOLUME,), FFT),
    Case("irfft2d", tf.signal.irfft2d, (Z,), FFT),
    Case("rfft3d", tf.signal.rfft3d, (VOLUME,), FFT),
    Case("fft of double", tf.signal.fft, (Z.astype(np.complex128),), FFT, 1e-12),
    Case("stft", lambda x: tf.signal.stft(x, 4, 2), (VOLUME,), FFT),
    Case("dct", tf.signal.dct, (VOLUME,), FFT),
]
CASES += [
    Case(
        f"triangular_solve lower={lower} adjoint={adjoint} {name}",
        lambda a, b, lower=lower, adjoint=adjoint: tf.linalg.triangular_solve(a, b, lower, adjoint),
        (matrix, right),
        SOLVE,
        1e-4,
    )
    for lower in (True, False)
    for adjoint in (True, False)
    for name, matrix, right in (("real", SPD, B), ("complex", HERMITIAN, B.astype(np.complex64)))
]


def _gradient(fn: Any) -> Any:
    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.sin(fn(x)))
        return tape.gradient(loss, x)

    return gradient


CASES += [
    Case("cholesky gradient", _gradient(tf.linalg.cholesky), (SPD,), SOLVE, 1e-4),
    Case("inverse gradient", _gradient(tf.linalg.inv), (SPD,), QR, 1e-4),
]
MATRIX = "tensor<4x4xf32>"
TEXTS = [
    TextCase(
        "cholesky, upper",
        "(%a: tensor<4x4xcomplex<f32>>) -> tensor<4x4xcomplex<f32>>",
        "%r = stablehlo.cholesky %a, lower = false : tensor<4x4xcomplex<f32>>\nreturn %r : tensor<4x4xcomplex<f32>>",
        (np.triu(HERMITIAN[0]),),
        (np.linalg.cholesky(HERMITIAN[0]).conj().T,),
        ("stablehlo.cholesky",),
    ),
    TextCase(
        "triangular_solve from the right, unit diagonal, transposed",
        f"(%a: {MATRIX}, %b: tensor<3x4xf32>) -> tensor<3x4xf32>",
        '%r = "stablehlo.triangular_solve"(%a, %b) <{left_side = false, lower = true, unit_diagonal = true, '
        f"transpose_a = #stablehlo<transpose TRANSPOSE>}}> : ({MATRIX}, tensor<3x4xf32>) -> tensor<3x4xf32>\n"
        "return %r : tensor<3x4xf32>",
        (A[0], B[0].T.copy()),
        (np.linalg.solve(np.tril(A[0], -1) + np.eye(4), B[0]).T.astype(np.float32),),
        SOLVE,
        1e-4,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_tensorflow(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case.name)
def test_agrees_with_numpy(case: TextCase) -> None:
    case.check()


@pytest.mark.parametrize("matrix", [A, TALL, WIDE, Z], ids=["square", "tall", "wide", "complex"])
@pytest.mark.parametrize("full", [True, False])
def test_qr_gives_the_matrix_back(matrix: np.ndarray, full: bool) -> None:
    """Columns of Q have a free sign, so the factors themselves are not compared."""
    module = lowered(lambda x: tf.linalg.qr(x, full_matrices=full), tf.constant(matrix))
    assert {"@Qr", "@ProductOfElementaryHouseholderReflectors"} <= ops_of(module)
    q, r = run_module(module, matrix)
    wanted = tf.linalg.qr(matrix, full_matrices=full)
    assert (q.shape, r.shape) == (wanted.q.shape, wanted.r.shape)
    np.testing.assert_allclose(q @ r, matrix, atol=1e-5)
    np.testing.assert_allclose(
        np.swapaxes(q.conj(), -1, -2) @ q,
        np.broadcast_to(np.eye(q.shape[-1]), r.shape[:-2] + q.shape[-1:] * 2),
        atol=1e-5,
    )
    np.testing.assert_array_equal(r, np.triu(r))


def test_eigenvectors_give_the_matrix_back() -> None:
    values, vectors = run_module(lowered(tf.linalg.eigh, tf.constant(SPD)), SPD)
    np.testing.assert_allclose(vectors * values[:, None] @ np.swapaxes(vectors, -1, -2), SPD, atol=1e-4)
    assert (np.diff(values) > 0).all()


def test_singular_vectors_give_the_matrix_back() -> None:
    s, u, v = run_module(lowered(lambda x: tf.linalg.svd(x), tf.constant(B)), B)
    np.testing.assert_allclose(u * s[:, None] @ np.swapaxes(v, -1, -2), B, atol=1e-4)
