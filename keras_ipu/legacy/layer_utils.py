"""`keras.utils.layer_utils`: what programs use of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


def count_params(weights: Iterable[Any]) -> int:
    """How many numbers some variables hold, each variable once."""
    return sum(math.prod(weight.shape) for weight in {id(weight): weight for weight in weights}.values())
