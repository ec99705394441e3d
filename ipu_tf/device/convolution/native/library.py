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

FILTER_GRADIENT = "ipu_tf_filter_gradient"
PACKED_PRODUCT = "ipu_tf_packed_product"
SUM = "ipu_tf_sum"
MOMENTS = "ipu_tf_moments"
SOFTMAX = "ipu_tf_softmax"
LAYER_NORMALIZATION = "ipu_tf_layer_normalization"
ELEMENTWISE = "ipu_tf_elementwise"
RANDOM_BITS = "ipu_tf_random_bits"
ROW_PRODUCT = "ipu_tf_row_product"
ROUNDING = "ipu_tf_stochastic_rounding"
INSTANCE_SUM = "ipu_tf_instance_sum"
MATRIX_PRODUCT = "ipu_tf_matrix_product"
DENSE_CONVOLUTION = "ipu_tf_dense_convolution"
DEPTHWISE_CONVOLUTION = "ipu_tf_depthwise_convolution"
HANDLERS = (
    FILTER_GRADIENT,
    PACKED_PRODUCT,
    SUM,
    MOMENTS,
    SOFTMAX,
    LAYER_NORMALIZATION,
    ELEMENTWISE,
    RANDOM_BITS,
    ROW_PRODUCT,
    ROUNDING,
    INSTANCE_SUM,
    MATRIX_PRODUCT,
    DENSE_CONVOLUTION,
    DEPTHWISE_CONVOLUTION,
)
"""Functions of the library that XLA calls."""
LEVELS = ("plain vectors", "AVX2", "AVX-512")
"""Instruction sets that there are kernels for, the least capable first."""
NEEDED = "GCC 11 or newer, or Clang"
"""Compilers that the kernels can be built with: see `processor.h`."""


@dataclasses.dataclass(frozen=True)
class Library:
    """The library of native kernels, registered with XLA.

    Attributes:
        made: a hash of the library.
        level: the most capable instruction set of this processor, an index of `LEVELS`.
        functions: the library's other functions.
    """

    made: str
    level: int
    functions: ctypes.CDLL

    def target(self, handler: str) -> str:
        """Returns the name of the custom call of one of `HANDLERS`.

        It has the library's hash in it, so that a program that calls another build is another one for every cache.
        """
        return f"{handler}_{self.made}"


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
        raise RuntimeError(
            f"wanted the native library; received: {described()}. Install one, and then the package once more."
        )
    return native


@functools.cache
def loaded() -> Library | None:
    """Loads and registers the library, once; None if the package was installed without it."""
    path = built()
    if path is None:
        return None
    functions = ctypes.CDLL(str(path))
    library = Library(hashlib.sha256(path.read_bytes()).hexdigest()[:16], functions.ipu_tf_level(), functions)
    for handler in HANDLERS:
        call = jax.ffi.pycapsule(getattr(functions, handler))
        jax.ffi.register_ffi_target(library.target(handler), call, platform="cpu")
    return library


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
        return f"there are no native kernels: the package was installed without a C compiler ({NEEDED})"
    return f"native kernels, {LEVELS[library.level]}"
