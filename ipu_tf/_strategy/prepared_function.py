"""`PreparedFunction`: a function of `strategy.run`, traced and lowered once for arguments of each kind."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._state.registry import register_state
from ipu_tf._state.trace_lock import TRACE_LOCK
from ipu_tf._strategy.arguments import computation_of, is_kept, is_tensor, key_of, spec_of, tensors_of, text_of
from ipu_tf._strategy.iterator_arguments import IteratorFeeds, with_stand_ins
from ipu_tf._training.replication import target, target_of, traced_for
from ipu_tf.device.run.recompilation import Signature, named_arguments, settings_of, what_changed
from ipu_tf.ipu_iterator import IPUIterator
from ipu_tf.lowering.programs.taped_function import TapedFunction
from ipu_tf.lowering.tensorflow import tf_private
from ipu_tf.lowering.tensorflow.op_lines import location_of_value


@dataclasses.dataclass
class PreparedFunction:
    """A function traced and lowered for one set of arguments.

    Attributes:
        function: the program.
        outputs: the structure of the function's results.
        feeds: the feeds of the iterators among the arguments.
        alive: arguments that the trace depends on, kept so that nothing else takes their identity.
        signature: these arguments, by name.
    """

    function: TapedFunction
    outputs: Any
    feeds: IteratorFeeds
    alive: tuple[Any, ...]
    signature: Signature = dataclasses.field(default_factory=dict)

    def explain(self, signature: Signature, earlier: Sequence[PreparedFunction]) -> None:
        """Sets the signature, and records what is other than in earlier ones of the same function."""
        because = what_changed(signature, [each.signature for each in earlier])
        self.function.runs.executable.record.because = because
        self.signature = signature


_prepared: weakref.WeakKeyDictionary[Any, dict[Any, list[PreparedFunction]]] = register_state(
    "functions of strategy.run", weakref.WeakKeyDictionary()
)


def prepared_for(
    strategy: Any,
    function: Callable[..., Any],
    structure: tuple[Any, Any],
    leaves: list[Any],
    iterators: Sequence[IPUIterator],
) -> PreparedFunction:
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


def _fitting(known: list[PreparedFunction]) -> PreparedFunction | None:
    """Returns the program for the shapes that variables of unknown shape have now; None if there is none yet."""
    return next((each for each in known if each.function.runs.fits_variables()), None)


def _prepare(
    strategy: Any,
    function: Callable[..., Any],
    structure: Any,
    leaves: list[Any],
    iterators: Sequence[IPUIterator],
) -> PreparedFunction:
    ordinal = strategy._device_ordinal  # noqa: SLF001
    leaves, feeds = with_stand_ins(leaves, iterators)
    structure = tf.nest.map_structure(lambda _: None, structure)  # not to keep what is in it
    specs = [spec_of(tensor) for leaf in leaves for tensor in tensors_of(leaf)]
    body = computation_of(strategy, function, structure, leaves)
    with traced_for(ordinal, strategy.reduces_in_programs):
        concrete = tf_private.concrete_function(tf.function(body, autograph=False, jit_compile=True), *specs)
    _check_dtypes(concrete.inputs, "input")
    _check_dtypes([output for output in concrete.outputs if output is not None], "output")
    title = str(getattr(function, "__name__", ""))
    runs = TapedFunction(concrete, target_of(ordinal, concrete.graph), title)
    return PreparedFunction(runs, concrete.structured_outputs, feeds, tuple(filter(is_kept, leaves)))


def _check_dtypes(tensors: list[tf.Tensor], role: str) -> None:
    for tensor in tensors:
        if tensor.dtype == tf.float64:
            raise TypeError(
                f"Unsupported data type for {role}: float64\n{location_of_value(tensor)}\nThe device has no float64: "
                "cast to float32 on the host, or make the tensor as float32."
            )
