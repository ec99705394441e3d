"""`GradientAccumulationReductionMethod`: sum, mean or running mean of micro-batch gradients."""

from __future__ import annotations

import enum
from typing import Any

__all__ = ["GradientAccumulationReductionMethod"]


class GradientAccumulationReductionMethod(enum.Enum):
    """Reduction of the gradients `g[0] .. g[n-1]` of the micro-batches of an update.

    SUM: their sum. MEAN: the sum of `g[i] / n`, each divided before it is added. RUNNING_MEAN: their mean, kept up to
    date: `mean * i / (i + 1) + g[i] / (i + 1)`.
    """

    SUM = 0
    MEAN = 1
    RUNNING_MEAN = 2

    @classmethod
    def parse(cls, reduction_method: Any) -> GradientAccumulationReductionMethod:
        """The method of this name, in any case; a method stays one.

        Raises:
            ValueError: if there is none.

        Example:
            >>> GradientAccumulationReductionMethod.parse("mean").name
            'MEAN'
        """
        if isinstance(reduction_method, cls):
            return reduction_method
        if isinstance(reduction_method, str) and reduction_method.upper() in cls.__members__:
            return cls[reduction_method.upper()]
        raise ValueError(
            f"Cannot parse {reduction_method} as one of GradientAccumulationReductionMethod. "
            "Valid values are: SUM, MEAN, RUNNING_MEAN."
        )
