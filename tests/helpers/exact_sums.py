"""Arrays whose products and sums float32 computes exactly, so that any order of a sum has the same bits."""

from __future__ import annotations

import numpy as np

LARGEST = 8


def small_integers(*shape: int, seed: int = 0) -> np.ndarray:
    """float32 integers of -8 to 8: sums of up to 2**24 / 8**2 products of two of them are exact."""
    return np.random.default_rng(seed).integers(-LARGEST, LARGEST, shape, endpoint=True).astype(np.float32)
