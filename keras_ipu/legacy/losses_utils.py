"""Compatibility module for `keras.utils.losses_utils`: `ReductionV2`."""

from __future__ import annotations

from enum import StrEnum


class ReductionV2(StrEnum):
    """Keras 2's constants, with the values that Keras 3 takes for them."""

    AUTO = "sum_over_batch_size"
    NONE = "none"
    SUM = "sum"
    SUM_OVER_BATCH_SIZE = "sum_over_batch_size"
