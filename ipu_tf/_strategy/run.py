"""Implements `IPUStrategy.run`: traces a `tf.function` and runs it on the device."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_tf._state.context import context_value
from ipu_tf._strategy.arguments import computation_of, filled_in_graph, is_tensor, tensors_of
from ipu_tf._strategy.hooks import refuse_legacy_keras
from ipu_tf._strategy.iterator_arguments import distinct_iterators
from ipu_tf._strategy.prepared_function import prepared_for
from ipu_tf._training.replication import target, traced_for
from ipu_tf.device.run.interruptible_call import InterruptibleCall
from ipu_tf.ipu_iterator import fed_by, feed_of
from ipu_tf.lowering.programs.graph_op import embed
from ipu_tf.lowering.tensorflow import tf_graphs, tf_private, tf_values

_NOT_A_FUNCTION = (
    "IPUStrategyV1.run(fn, ...) does not support eager execution. Either convert `fn` into a tf.function or consider "
    "calling strategy.run inside a tf.function."
)
EagerStep = Callable[[str], contextlib.AbstractContextManager[None]]
"""From a device to the context in which eager ops run there."""
_eagerly: contextvars.ContextVar[EagerStep | None] = contextvars.ContextVar("ipu_strategy_runs_eagerly", default=None)


def functions_run_eagerly(eager_step: EagerStep) -> contextlib.AbstractContextManager[None]:
    """Context in which `strategy.run` runs any function op by op on the device, for `run_eagerly=True` of Keras."""
    return context_value(_eagerly, eager_step)


def skip_device_compilation(function: Any) -> Any:
    """Marks a `tf.function` that places its own ops on host and device: `run` calls it without compiling it."""
    function._ipu_runs_itself = True  # noqa: SLF001 - TensorFlow's object carries our mark
    return function


def run_on_device(strategy: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs a function on a strategy's device; the rules are those of `IPUStrategyV1.run`."""
    with InterruptibleCall():
        return _run(strategy, function, args, kwargs)


def _run(strategy: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _eagerly.get() is None:
        refuse_legacy_keras(function)
    if getattr(function, "_ipu_runs_itself", False):
        return function(*args, **kwargs)
    if not tf_values.executing_eagerly():
        return _run_in_graph(strategy, function, args, kwargs)
    eager_step = _eagerly.get()
    if eager_step is not None:
        with strategy.replica_context(), eager_step(strategy.extended.non_slot_devices(None)):
            return function(*args, **kwargs)
    if not hasattr(function, "get_concrete_function") and not tf_private.is_concrete(function):
        raise ValueError(_NOT_A_FUNCTION)
    return _run_program(strategy, function, args, kwargs)


def _run_program(
    strategy: Any,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    iterators_alike: bool = True,
) -> Any:
    """Runs the program of a function for such arguments, which is made at its first run.

    Args:
        strategy: the strategy.
        function: a `tf.function`.
        args: its arguments.
        kwargs: those by name.
        iterators_alike: whether one program serves all iterators whose elements are alike.
    """
    ordinal = strategy._device_ordinal  # noqa: SLF001 - one class in two files
    leaves = [fed_by(leaf, ordinal) for leaf in tf.nest.flatten((args, kwargs))]
    iterators = distinct_iterators(leaves) if iterators_alike else []
    tensors = [tensor for leaf in leaves for tensor in tensors_of(leaf)]
    prepared = prepared_for(strategy, function, (args, kwargs), leaves, iterators)
    if iterators and prepared.function.runs.reads(map(feed_of, iterators)):  # it closes over one of them too
        return _run_program(strategy, function, args, kwargs, iterators_alike=False)
    computation = computation_of(strategy, function, (args, kwargs), leaves)
    with prepared.feeds.of(iterators):
        return _restored(prepared.outputs, prepared.function(tensors, computation))


def _restored(outputs: Any, tensors: list[tf.Tensor]) -> Any:
    """Packs flat results in the structure that the function returned, with its `None`s."""
    given = iter(tensors)
    flat = [None if leaf is None else next(given) for leaf in tf.nest.flatten(outputs, expand_composites=True)]
    return tf.nest.pack_sequence_as(outputs, flat, expand_composites=True)


def _run_in_graph(strategy: Any, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Runs the program inside a graph, as an op of it; inside a device program, as a part of that."""
    if tf_graphs.in_program(tf.compat.v1.get_default_graph()):
        with tf.distribute.ReplicaContext(strategy, replica_id_in_sync_group=0):
            return function(*args, **kwargs)
    ordinal = strategy._device_ordinal  # noqa: SLF001
    leaves = [fed_by(leaf, ordinal) for leaf in tf.nest.flatten((args, kwargs))]
    outputs: list[Any] = []
    computation = computation_of(strategy, function, (args, kwargs), leaves, filled_in_graph)

    def body(*tensors: tf.Tensor) -> list[tf.Tensor]:
        outputs.append(computation(*tensors))
        parts = tf.nest.flatten(outputs[-1], expand_composites=True)
        return [tf.convert_to_tensor(part) for part in parts if part is not None]

    tensors = [tf.convert_to_tensor(leaf) for leaf in leaves if is_tensor(leaf)]
    with traced_for(ordinal, strategy.reduces_in_programs):
        results = embed(body, tensors, "strategy_run", functools.partial(target, ordinal)).outputs
    return _restored(outputs[-1], results)
