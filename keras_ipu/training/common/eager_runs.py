"""`run_eagerly=True`: a model's steps run op by op on the device, by Keras's own functions, for debugging.

On TensorFlow `tf.config.run_functions_eagerly(True)` does the same for all models.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ipu_tf._config.state import graphcore_rules
from ipu_tf._state.context import context_value
from ipu_tf._state.once import first_time
from keras_ipu.options.model_state import options_of
from keras_ipu.pipeline.run_checks import is_pipelined
from keras_ipu.stock.patches import StockEpochIterator
from keras_ipu.training.common.instance_data import current_first_batch, take_first_batch
from keras_ipu.training.common.sparse_data import dense_elements
from keras_ipu.training.common.step_split import replica_count

_log = logging.getLogger("ipu_tf")
_GRAPHCORES = (
    "Keras models cannot run eagerly when using `IPUStrategy`. Set `run_eagerly=False` when calling `compile`."
)
_SWITCH = "`tf.config.run_functions_eagerly(False)`"


_eager: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_eager_run", default=False)


def eager_run(eagerly: bool) -> contextlib.AbstractContextManager[None]:
    """Context in which Keras's loop is, or is not, that of an IPU model that runs eagerly."""
    return context_value(_eager, eagerly)


def stock_epoch_iterator(*args: Any, **kwargs: Any) -> Any:
    """Makes Keras's own epoch iterator; in an eager run sparse batches of its dataset are made dense."""
    return (_DenseEpochIterator if _eager.get() else StockEpochIterator)(*args, **kwargs)


class _DenseEpochIterator(StockEpochIterator):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        take_first_batch(self, eagerly=True)

    def _get_iterator(self) -> Any:
        batches = super()._get_iterator()
        return dense_elements(batches) if isinstance(batches, tf.data.Dataset) else batches


class EagerFunction:
    """A train, test or predict function that Keras made for a model that runs eagerly.

    Args:
        function: Keras's.
        called: called after each execution.
        trains: whether it is a train function, of which the instances have to have as many batches.
    """

    def __init__(self, function: Callable[..., Any], called: Callable[[], None], trains: bool = False) -> None:
        self._function = function
        self._called = called
        self._trains = trains

    def __call__(self, *args: Any) -> Any:
        """Runs one execution."""
        first = current_first_batch.get() if self._trains else None
        if first is None:
            outputs = self._function(*args)
        else:
            outputs = self._function(*args[:-1], first.agreed(args[-1]))
            first.compare()
        self._called()
        return outputs


def runs_eagerly(model: Any) -> bool:
    """Returns whether an IPU model runs op by op: by `compile(run_eagerly=True)`, or by TensorFlow's own switch."""
    switched = keras.backend.backend() == "tensorflow" and tf.config.functions_run_eagerly()
    return bool(model.compiled and (model.run_eagerly or switched))


def check_graphcores_rule(eagerly: bool) -> None:
    """Checks `run_eagerly` under Graphcore's rules.

    Raises:
        RuntimeError: if they hold, and it is set.
    """
    if eagerly and graphcore_rules():
        raise RuntimeError(_GRAPHCORES)


def check_eager_model(model: Any) -> None:
    """Checks that a model's steps are not split, and says once that they are slow.

    Raises:
        RuntimeError: under Graphcore's rules, and for accumulation, replicas, pipelines and asynchronous callbacks.
    """
    check_graphcores_rule(True)
    options = options_of(model)
    unfit = {
        "gradient accumulation": (options.gradient_accumulation_steps or 1) > 1,
        "a pipeline": is_pipelined(model),
        "asynchronous callbacks": options.asynchronous_callbacks,
    }
    wanted = [what for what, used in unfit.items() if used]
    if not wanted and replica_count(model) > 1:
        wanted = [f"{replica_count(model)} replicas"]
    if wanted:
        raise RuntimeError(
            "With `run_eagerly=True` each step runs op by op on one IPU, without gradient accumulation, replicas, "
            f"pipelines and asynchronous callbacks. Received: a model with {' and '.join(wanted)}. "
            + ("Compile it with `run_eagerly=False`" if model.run_eagerly else f"Call {_SWITCH}")
            + ", or without these."
        )
    if first_time("run_eagerly"):
        _log.warning(
            "ipu_tf: `run_eagerly=True`: each op runs by itself on the device, which is slow, for debugging. %s "
            "runs each step as one program.",
            "`compile(run_eagerly=False)`" if model.run_eagerly else _SWITCH,
        )
