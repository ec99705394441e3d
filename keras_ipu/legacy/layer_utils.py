"""Compatibility module for `keras.utils.layer_utils`: `count_params`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


def count_params(weights: Iterable[Any]) -> int:
    """Counts the elements of variables, each variable once."""
    return sum(math.prod(weight.shape) for weight in {id(weight): weight for weight in weights}.values())
