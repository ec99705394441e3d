"""`ARRAYS`: the functions on NumPy's arrays that outputs for Keras are made by, with Keras on JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from keras_ipu.training.common.outputs_for_keras import ArrayFunctions


def _mean(values: np.ndarray) -> Any:
    return values.astype(np.float32).mean(0) if np.issubdtype(values.dtype, np.integer) else values.mean(0)


ARRAYS = ArrayFunctions(
    jax.tree.map,
    list,
    lambda values: values.sum(0),
    _mean,
    np.reshape,
    lambda *arrays: np.concatenate(arrays),
    lambda *arrays: np.stack(arrays),
    stacks_scalars=False,
)
