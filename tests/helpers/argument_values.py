"""Hypothesis strategies for arguments of a table, right and wrong, and what the table says of each value."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

from ipu_tf._config.argument_table import Argument
from ipu_tf.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_tf.ops.pipelining_ops import PipelineSchedule, PipelineStageOptions, RecomputationMode
from keras_ipu.options.options import ReplicatedMetricReductionMethod

REFUSALS = (TypeError, ValueError, NotImplementedError)
"""What a bad value raises; nothing else reaches the user."""
_NUMBERS = st.one_of(st.integers(-(2**40), 2**40), st.integers(-3, 300), st.integers(0, 9).map(np.int32))
_OTHERS = st.one_of(
    st.none(),
    st.booleans(),
    st.booleans().map(np.bool_),
    st.floats(),
    st.sampled_from(["", "True", "False", "mean", "Grouped", "float16", "3", "\0"]),
    st.sampled_from([tf.float16, np.float32, tf.constant(2), np.ones(2), object(), len]),
    st.sampled_from([*PipelineSchedule, *RecomputationMode, *GradientAccumulationReductionMethod]),
    st.sampled_from([*ReplicatedMetricReductionMethod, PipelineStageOptions(), [PipelineStageOptions()]]),
    st.lists(st.one_of(st.integers(-2, 20), st.booleans(), st.floats(), st.text(max_size=2)), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def values() -> st.SearchStrategy[Any]:
    """Values of every type that any argument takes, and others."""
    return st.one_of(_NUMBERS, _OTHERS)


def says(argument: Argument, value: Any) -> bool | None:
    """Whether a table's row says that a value is taken; None where a check of its own decides."""
    kind = argument.value_type
    if value is None and (argument.default is None or kind.actual is bool):
        return True
    if argument.refused or not (argument.check is None or kind.actual is int):
        return None
    return kind.accepts(value) and kind.holds(kind.plain(value))


def taken(argument: Argument, value: Any) -> bool:
    """Whether an argument's check takes a value; errors of other classes than `REFUSALS` are not caught."""
    try:
        argument.checked(value)
    except REFUSALS as error:
        assert len(str(error)) > 20, f"{argument.name}: {error}"
        return False
    return True
