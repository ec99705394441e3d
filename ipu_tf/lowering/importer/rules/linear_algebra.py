"""Rules for linear algebra: factorisations, triangular solves, Fourier transforms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.lowering.importer.rules.attributes import flag
from ipu_tf.lowering.importer.rules.registry import ArithmeticKind, Importer, custom_call_rule, rule
from ipu_tf.lowering.stablehlo.op import Op


@rule("stablehlo.cholesky", arithmetic=ArithmeticKind.WHOLE)
def _cholesky(importer: Importer, op: Op, matrix: jax.Array) -> jax.Array:
    if flag(op, "lower"):
        return lax.linalg.cholesky(matrix, symmetrize_input=False)
    return _adjoint(lax.linalg.cholesky(_adjoint(matrix), symmetrize_input=False))


def _adjoint(matrix: jax.Array) -> jax.Array:
    turned = jnp.swapaxes(matrix, -1, -2)
    return lax.conj(turned) if jnp.issubdtype(turned.dtype, jnp.complexfloating) else turned


@rule("stablehlo.triangular_solve", arithmetic=ArithmeticKind.WHOLE)
def _triangular_solve(importer: Importer, op: Op, matrix: jax.Array, right: jax.Array) -> jax.Array:
    transpose = op.word("transpose_a")
    return lax.linalg.triangular_solve(
        matrix,
        right,
        left_side=flag(op, "left_side"),
        lower=flag(op, "lower"),
        transpose_a=transpose in ("TRANSPOSE", "ADJOINT"),
        conjugate_a=transpose == "ADJOINT",
        unit_diagonal=flag(op, "unit_diagonal"),
    )


@rule("stablehlo.fft")  # no arithmetic that is checked or rounded: complex numbers are not
def _fft(importer: Importer, op: Op, operand: jax.Array) -> jax.Array:
    return lax.fft(operand, op.word("fft_type"), op.integers("fft_length"))


@custom_call_rule("Qr", arithmetic=ArithmeticKind.WHOLE)
def _qr(importer: Importer, op: Op, matrix: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
    """QR factorisation in LAPACK's form (`geqrf`): R above the Householder vectors, and their factors."""
    transposed, factors = jnp.linalg.qr(matrix, mode="raw")
    return [(jnp.swapaxes(transposed, -1, -2), factors)]


@custom_call_rule("ProductOfElementaryHouseholderReflectors", arithmetic=ArithmeticKind.WHOLE)
def _householder_product(importer: Importer, op: Op, vectors: jax.Array, factors: jax.Array) -> jax.Array:
    return lax.linalg.householder_product(vectors, factors)


@custom_call_rule("Eigh", arithmetic=ArithmeticKind.WHOLE)
def _eigh(importer: Importer, op: Op, matrix: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
    """Computes eigenvectors and eigenvalues. The last two numbers of the configuration tune XLA's own iteration."""
    lower, ascending, _, _ = op.text("backend_config").strip('"').split(",")
    vectors, values = lax.linalg.eigh(
        matrix, lower=lower == "1", symmetrize_input=False, sort_eigenvalues=ascending == "1"
    )
    return [(vectors, values)]
