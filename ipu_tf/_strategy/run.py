"""Implements `IPUStrategy.run`: traces a `tf.function` and runs it on the device."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._state.context import context_value
from ipu_tf._state.registry import register_state
from ipu_tf._state.trace_lock import TRACE_LOCK
from ipu_tf._strategy.arguments import filled, is_kept, is_tensor, key_of, spec_of, tensors_of, text_of
from ipu_tf._strategy.hooks import refuse_legacy_keras
from ipu_tf._strategy.iterator_arguments import IteratorFeeds, distinct_iterators, with_stand_ins
from ipu_tf._training.replication import target, target_of, traced_for
from ipu_tf.device.run.interruptible_call import InterruptibleCall
from ipu_tf.device.run.recompilation import Signature, named_arguments, settings_of, what_changed
from ipu_tf.ipu_iterator import IPUIterator, fed_by, feed_of, iterators_in_programs
from ipu_tf.lowering.programs.device_function import DeviceFunction
from ipu_tf.lowering.programs.graph_op import embed
from ipu_tf.lowering.tensorflow import tf_graphs, tf_private, tf_values
from ipu_tf.lowering.tensorflow.op_lines import location_of_value

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


@dataclasses.dataclass
class _Prepared:
    """A function traced and lowered for one set of arguments.

    Attributes:
        device_function: the program.
        outputs: the structure of the function's results.
        feeds: the feeds of the iterators among the arguments.
        alive: arguments that the trace depends on, kept so that nothing else takes their identity.
        signature: these arguments, by name.
    """

    device_function: DeviceFunction
    outputs: Any
    feeds: IteratorFeeds
    alive: tuple[Any, ...]
    signature: Signature = dataclasses.field(default_factory=dict)

    def explain(self, signature: Signature, earlier: Sequence[_Prepared]) -> None:
        """Sets the signature, and records what is other than in earlier ones of the same function."""
        because = what_changed(signature, [each.signature for each in earlier])
        self.device_function.executable.record.because = because
        self.signature = signature


_prepared: weakref.WeakKeyDictionary[Any, dict[Any, list[_Prepared]]] = register_state(
    "functions of strategy.run", weakref.WeakKeyDictionary()
)


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
    prepared = _prepared_for(strategy, function, (args, kwargs), leaves, iterators)
    if iterators and prepared.device_function.reads(map(feed_of, iterators)):  # it closes over one of them too
        return _run_program(strategy, function, args, kwargs, iterators_alike=False)
    with prepared.feeds.of(iterators):
        return _restored(prepared.outputs, prepared.device_function(tensors))


def _prepared_for(
    strategy: Any,
    function: Callable[..., Any],
    structure: tuple[Any, Any],
    leaves: list[Any],
    iterators: Sequence[IPUIterator],
) -> _Prepared:
    """Returns a function traced and lowered for arguments, at the first call with such ones."""
    where = target(strategy._device_ordinal)  # noqa: SLF001 - one class in two files
    kinds = str(tf.nest.map_structure(is_tensor, structure))
    key = (where, strategy.reduces_in_programs, kinds, *(key_of(leaf, iterators) for leaf in leaves))
    known = _prepared.setdefault(function, {})
    of_key = known.setdefault(key, [])
    prepared = _fitting(of_key)
    if prepared is None:
        with TRACE_LOCK:
            prepared = _fitting(of_key)  # another thread may have traced it meanwhile
            if prepared is None:
                prepared = _prepare(strategy, function, structure, leaves, iterators)
                signature = {name: text_of(leaf) for name, leaf in named_arguments(function, *structure)}
                prepared.explain(signature | settings_of(where), [each for some in known.values() for each in some])
                of_key.append(prepared)
    return prepared


def _fitting(known: list[_Prepared]) -> _Prepared | None:
    """Returns the program for the shapes that variables of unknown shape have now; None if there is none yet."""
    return next((each for each in known if each.device_function.fits_variables()), None)


def _prepare(
    strategy: Any,
    function: Callable[..., Any],
    structure: Any,
    leaves: list[Any],
    iterators: Sequence[IPUIterator],
) -> _Prepared:
    ordinal = strategy._device_ordinal  # noqa: SLF001
    leaves, feeds = with_stand_ins(leaves, iterators)
    structure = tf.nest.map_structure(lambda _: None, structure)  # not to keep what is in it
    specs = [spec_of(tensor) for leaf in leaves for tensor in tensors_of(leaf)]

    def body(*tensors: tf.Tensor) -> Any:
        fed = iter(tensors)
        args, kwargs = tf.nest.pack_sequence_as(structure, [filled(leaf, fed) for leaf in leaves])
        with tf.distribute.ReplicaContext(strategy, replica_id_in_sync_group=0), iterators_in_programs(ordinal):
            return function(*args, **kwargs)

    with traced_for(ordinal, strategy.reduces_in_programs):
        concrete = tf_private.concrete_function(tf.function(body, autograph=False, jit_compile=True), *specs)
    _check_dtypes(concrete.inputs, "input")
    _check_dtypes([output for output in concrete.outputs if output is not None], "output")
    title = str(getattr(function, "__name__", ""))
    runs = DeviceFunction(concrete, target_of(ordinal, concrete.graph), title)
    return _Prepared(runs, concrete.structured_outputs, feeds, tuple(filter(is_kept, leaves)))


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

    def body(*tensors: tf.Tensor) -> list[tf.Tensor]:
        fed = iter(tensors)
        filled = [next(fed) if is_tensor(leaf) else leaf for leaf in leaves]
        new_args, new_kwargs = tf.nest.pack_sequence_as((args, kwargs), filled)
        with tf.distribute.ReplicaContext(strategy, replica_id_in_sync_group=0), iterators_in_programs(ordinal):
            outputs.append(function(*new_args, **new_kwargs))
        parts = tf.nest.flatten(outputs[-1], expand_composites=True)
        return [tf.convert_to_tensor(part) for part in parts if part is not None]

    tensors = [tf.convert_to_tensor(leaf) for leaf in leaves if is_tensor(leaf)]
    with traced_for(ordinal, strategy.reduces_in_programs):
        results = embed(body, tensors, "strategy_run", functools.partial(target, ordinal)).outputs
    return _restored(outputs[-1], results)


def _check_dtypes(tensors: list[tf.Tensor], role: str) -> None:
    for tensor in tensors:
        if tensor.dtype == tf.float64:
            raise TypeError(
                f"Unsupported data type for {role}: float64\n{location_of_value(tensor)}\nThe device has no float64: "
                "cast to float32 on the host, or make the tensor as float32."
            )
