"""`row_words`: attribute `shapes` of native calls over rows: softmax and layer normalisation, as in `row_shapes.h`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ipu_tf.device.convolution.native import library

#: Elements of a part of a call, about, and the most parts: results do not depend on them.
PART, MOST_PARTS = 2**14, 16


def row_words(shape: Sequence[int], number: float, level: int | None) -> np.ndarray:
    """Returns the shapes of a call, int64.

    Args:
        shape: `[..., columns]`, with one element at least.
        number: a float32 that the call takes.
        level: the most capable instruction set to use, an index of `library.LEVELS`; None for any.

    Example:
        >>> row_words((2, 300, 64), 1.0, 0).tolist()
        [0, 600, 64, 1065353216, 2]
    """
    elements = math.prod(shape)
    rows = elements // shape[-1]
    parts = max(1, min(MOST_PARTS, elements // PART, rows))
    bits = int(np.float32(number).view(np.uint32))
    return np.array([library.level_or_best(level), rows, shape[-1], bits, parts], np.int64)
