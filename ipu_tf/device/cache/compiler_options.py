"""XLA compiler options of device programs: `compiler_options` of `jax.jit`.

They are set for each executable, so that the user's own JAX code is compiled with its own options.

XLA:CPU passes parts of a program to YNNPACK, a library of kernels. A matrix product that is passed by itself is
right, and faster than XLA's own. Fusions around reductions are not: with jaxlib 0.10.2 a product that is squared and
summed has wrong values at its end, sums of broadcasts differ from run to run, windows ignore base dilation, and
operands of seven dimensions end the process. `tests/xla_fuzz` holds the options to float64.
"""

from __future__ import annotations

from typing import Any

import jax

from ipu_tf.device.environment import xla_flags
from ipu_tf.device.memory.malloc_options import memory_options

YNN_FUSIONS = "xla_cpu_experimental_ynn_fusion_type"
"""The option that says which parts of a program YNNPACK is given."""
_RIGHT = "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"


def numeric_options() -> dict[str, Any]:
    """Returns the options that correct results need, for all compiled code, that in files included.

    An option that is set in `XLA_FLAGS` takes precedence.
    """
    if jax.default_backend() != "cpu" or YNN_FUSIONS in xla_flags():
        return {}
    return {YNN_FUSIONS: _RIGHT}


def compiler_options() -> dict[str, Any]:
    """Returns options for code used in this process only: `numeric_options`, and keeping freed memory."""
    return {**numeric_options(), **memory_options()}
