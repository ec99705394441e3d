"""Loads the native kernels' library and registers its functions with XLA's FFI."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import hashlib
import importlib.machinery
from pathlib import Path

import jax

from ipu_tf.device import portable
from ipu_tf.device.environment import allows_native_code

(
    SYMBOL,
    PRODUCT_SYMBOL,
    SUM_SYMBOL,
    ELEMENTWISE_SYMBOL,
    RANDOM_SYMBOL,
    ROW_SYMBOL,
    ROUNDING_SYMBOL,
    INSTANCE_SYMBOL,
    MATRIX_SYMBOL,
    DEPTHWISE_SYMBOL,
) = SYMBOLS = (
    "ipu_tf_filter_gradient",
    "ipu_tf_packed_product",
    "ipu_tf_sum",
    "ipu_tf_elementwise",
    "ipu_tf_random_bits",
    "ipu_tf_row_product",
    "ipu_tf_stochastic_rounding",
    "ipu_tf_instance_sum",
    "ipu_tf_matrix_product",
    "ipu_tf_depthwise",
)
LEVELS = ("plain vectors", "AVX2", "AVX-512")
"""Instruction sets that there are kernels for, the least capable first."""


@dataclasses.dataclass(frozen=True)
class Library:
    """The library of native kernels, registered with XLA.

    Attributes:
        target: name of the filter gradient's custom call. It has a hash of the library in it, so that a program that
            calls another build is another program for every compilation cache.
        product: the same of the product with packed weights.
        sum: the same of sums.
        elementwise: the same of elementwise functions.
        random_bits: the same of random bits.
        row_product: the same of products of a few rows with a matrix.
        rounding: the same of stochastic rounding.
        instance_sum: the same of sums over the instances of this host.
        matrix_product: the same of products of matrices.
        depthwise: the same of depthwise convolutions.
        level: the most capable instruction set of this processor, an index of `LEVELS`.
        functions: the library's other functions.
    """

    target: str
    product: str
    sum: str
    elementwise: str
    random_bits: str
    row_product: str
    rounding: str
    instance_sum: str
    matrix_product: str
    depthwise: str
    level: int
    functions: ctypes.CDLL


def level_or_best(level: int | None) -> int:
    """Returns the most capable instruction set that a call may use, an index of `LEVELS`: any, where None is given."""
    return len(LEVELS) - 1 if level is None else level


def usable() -> bool:
    """Returns whether code that is traced now may call native kernels."""
    return portable.native_code_allowed() and allows_native_code() and loaded() is not None


def runs_here() -> bool:
    """Returns whether code that is traced now may call them, and runs on the CPU if nothing else is said."""
    return usable() and jax.default_backend() == "cpu"


def needed() -> Library:
    """Returns the library.

    Raises:
        RuntimeError: if there is none.
    """
    native = loaded()
    if native is None:
        raise RuntimeError(f"wanted the native library; received: {described()}. Install a C compiler first.")
    return native


@functools.cache
def loaded() -> Library | None:
    """Loads and registers the library, once; None if the package was installed without it."""
    path = built()
    if path is None:
        return None
    functions = ctypes.CDLL(str(path))
    made = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    names = [f"{symbol}_{made}" for symbol in SYMBOLS]
    for symbol, name in zip(SYMBOLS, names, strict=True):
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(functions, symbol)), platform="cpu")
    level: int = functions.ipu_tf_level()
    gradient, product, total, elementwise, bits, rows, rounding, instances, matrices, depthwise = names
    return Library(
        gradient, product, total, elementwise, bits, rows, rounding, instances, matrices, depthwise, level, functions
    )


def built() -> Path | None:
    """Returns the file of the library; None if there is none."""
    here = Path(__file__).parent
    names = (f"_kernels{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES)
    return next((here / name for name in names if (here / name).exists()), None)


def described() -> str:
    """Describes in a line whether native kernels are used, and if not, why."""
    if not allows_native_code():
        return "native kernels are off: IPU_TF_NATIVE is 0"
    library = loaded()
    if library is None:
        return "there are no native kernels: the package was installed without a C compiler"
    return f"native kernels, {LEVELS[library.level]}"
