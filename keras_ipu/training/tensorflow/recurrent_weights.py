"""Reads the weights of recurrent layers once a call, outside of the time loop.

Keras's cells read their variables within the loop over time. TensorFlow then takes what it read for new in each step,
and keeps all of it for the way back: 80 copies of the kernels for 80 steps.

    read in the loop      kernel[0] kernel[1] ... kernel[79]      kept, and read again going back
    read before it        kernel                                   the same tensor in every step
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ipu_tf._state.context import context_value
from keras_ipu.stock import models as keras_models
from keras_ipu.stock import patches as keras_patches

#: Cells that change none of their weights while they run.
_STOCK_CELLS = (keras.layers.LSTMCell, keras.layers.GRUCell, keras.layers.SimpleRNNCell, keras.layers.StackedRNNCells)

_tracing: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_tracing_a_step", default=False)


def hoist_weight_reads() -> contextlib.AbstractContextManager[None]:
    """Context of tracing in which recurrent layers read their weights before the time loop."""
    return context_value(_tracing, True)


def patch_weight_reads() -> None:
    """Patches Keras's recurrent layers, once. It has an effect within `hoist_weight_reads` only."""
    keras_patches.patch_method(keras.layers.RNN, "inner_loop", _applies, _backend_rnn)


def _applies(layer: Any) -> bool:
    return _tracing.get() and _is_stock(layer.cell)


def _is_stock(cell: Any) -> bool:
    """Returns whether a cell is Keras's, and adds no loss while it runs: Keras keeps none that is added in a scope."""
    if type(cell) not in _STOCK_CELLS or cell.activity_regularizer is not None:
        return False
    return type(cell) is not keras.layers.StackedRNNCells or all(map(_is_stock, cell.cells))


def _backend_rnn(stock: Callable[..., Any], layer: Any, *args: Any, **kwargs: Any) -> Any:
    weights = [(weight, tf.convert_to_tensor(weight.value)) for weight in layer.cell.trainable_variables]
    with keras_models.VariableOverrideScope(weights):
        return stock(layer, *args, **kwargs)
