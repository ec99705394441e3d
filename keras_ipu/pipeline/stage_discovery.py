"""Finds the pipeline stages of a subclassed model by tracing its `call` with symbolic inputs.

data for fit ─► shapes of a batch ─► trace of `call` ─► `PipelineStage` scopes, before IPUs are shared out
"""

from __future__ import annotations

import contextlib
import itertools
import types
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from ipu_tf._data.narrow_dtypes import NARROW
from keras_ipu.options.model_state import state_of
from keras_ipu.pipeline.graph import ModelKind, is_called, kind_of, may_have_stages
from keras_ipu.pipeline.run_checks import is_pipelined
from keras_ipu.pipeline.stage_scopes import stages_entered

_DEFAULT_BATCH = 32
_UNKNOWN = (
    "Model {model} enters `PipelineStage` scopes while its step is traced, and was not known to be a pipeline before. "
    "Expected scopes in its `call`, whatever `training` is, in a program that has imported the class before the model "
    "runs: begin it with `from keras_ipu import PipelineStage`, or call the model's `set_pipelining_options`."
)


def discover_stages(model: Any, given: dict[str, Any]) -> bool:
    """Traces an unbuilt model once with the shapes of its data, if it may have stages that are not known yet.

    Args:
        model: the model.
        given: the arguments of its `fit`, `evaluate` or `predict`. A generator in it is replaced by one that gives
            the same batches: the first has been read.

    Returns:
        Whether stages were found.

    Raises:
        ValueError: for data of a kind whose batches cannot be looked at beforehand.
    """
    if not _may_have_stages(model) or given.get("x") is None:
        return False
    return is_pipelined(model, _inputs(model, given, given.get("batch_size") or _DEFAULT_BATCH))


def discover_stages_of_batch(model: Any, x: Any) -> None:
    """Traces an unbuilt model once as `discover_stages` does, with the shapes of one batch."""
    if _may_have_stages(model) and x is not None:
        is_pipelined(model, _specs(model, x))


@contextlib.contextmanager
def unknown_stages_refused(model: Any) -> Iterator[None]:
    """Context in which a model's step is traced; stages that are entered in it have to be known already.

    Raises:
        ValueError: where a `call` enters scopes that discovery has not found.
    """
    before = stages_entered()
    yield
    if stages_entered() > before and _is_unknown(model) and is_called(model):
        raise ValueError(_UNKNOWN.format(model=model.name))


def _may_have_stages(model: Any) -> bool:
    return may_have_stages(model) and _is_unknown(model)


def _is_unknown(model: Any) -> bool:
    return kind_of(model) is ModelKind.SUBCLASSED and state_of(model).graph is None


def _inputs(model: Any, given: dict[str, Any], batch_size: int) -> Any:
    """Returns the `tf.TensorSpec`s of a model's inputs; None if there are none, or the model is built already."""
    x = given["x"]
    if isinstance(x, tf.data.Dataset):
        return keras.utils.unpack_x_y_sample_weight(x.element_spec)[0]
    if isinstance(x, types.GeneratorType):
        first = list(itertools.islice(x, 1))
        given["x"] = _resumed(first, x)
        return _specs(model, keras.utils.unpack_x_y_sample_weight(first[0])[0]) if first else None
    if isinstance(x, keras.utils.PyDataset):
        empty = x.num_batches == 0
        return None if empty else _specs(model, keras.utils.unpack_x_y_sample_weight(x[0])[0])
    return _specs(model, x, batch_size)


def _resumed(first: list[Any], others: Iterator[Any]) -> Iterator[Any]:
    """Generator, the one kind of iterator that Keras takes, over batches that were read and those that were not."""
    yield from first
    yield from others


def _specs(model: Any, x: Any, batch_size: int | None = None) -> Any:
    """Returns the specs of arrays; with a batch size they are samples, of which batches are made."""
    leaves = tf.nest.flatten(x)
    if leaves and all(hasattr(leaf, "shape") for leaf in leaves):
        return tf.nest.map_structure(lambda leaf: _spec(leaf, batch_size), x)
    if not leaves or model.built:
        return None
    raise ValueError(
        f"Model {model.name} may have pipeline stages, which its `call` tells once the shapes of its inputs are known. "
        "Expected arrays, a `tf.data.Dataset`, a generator or a `PyDataset`, or a model that is built. Received: a "
        f"model that is not built, and {type(x).__name__}. Call the model on a batch before."
    )


def _spec(leaf: Any, batch_size: int | None) -> tf.TensorSpec:
    table = hasattr(leaf, "to_numpy")  # of pandas, whose columns have dtypes of their own
    dtype = tf.as_dtype(leaf[:1].to_numpy().dtype if table else leaf.dtype)
    shape = tuple(leaf.shape)
    if batch_size is not None:
        shape = (batch_size, *(shape[1:] or (1,)))  # Keras gives samples that are numbers a dimension
    return tf.TensorSpec(shape, NARROW.get(dtype, dtype))
