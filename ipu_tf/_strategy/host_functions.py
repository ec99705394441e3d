"""Warns about a `tf.function` that computes with weights of a strategy's scope on TensorFlow's CPU, not on the device.

`fit`, `evaluate`, `predict` and `strategy.run` compute on the device. A function that user code makes and calls itself
(`generate` of KerasHub's image models makes one) is TensorFlow's, which runs it on the host.
"""

from __future__ import annotations

import functools
import logging
import re
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._state.once import first_time
from ipu_tf._state.registry import register_state
from ipu_tf._tracing.caller_location import caller_location
from ipu_tf.lowering.tensorflow import tf_eager_patches
from ipu_tf.lowering.tensorflow.session_graph import MOVING

_log = logging.getLogger("ipu_tf")
_PYTHON = ("EagerPyFunc", "PyFunc", "PyFuncStateless")
_weights: dict[int, Any] = register_state("trainable variables of scopes", {}, kept="each goes with its variable")
"""Weak references to their handles, by `id`."""


def install() -> None:
    """Patches `tf.function` to check each function before its first call from eager code. Idempotent."""
    tf_eager_patches.patch_eager_calls(_look)


def note_variable(variable: Any) -> None:
    """Records a trainable variable that was made in a strategy's scope.

    Args:
        variable: a `tf.Variable`.
    """
    handle = getattr(variable, "handle", None)
    if handle is not None and getattr(variable, "trainable", False):
        key = id(handle)
        # A variable may live until the interpreter ends, when this module's names are gone.
        _weights[key] = weakref.ref(handle, functools.partial(_forget, _weights, key))


def _forget(weights: dict[int, Any], key: int, _: Any) -> None:
    weights.pop(key, None)


def _look(name: str, graph: tf.Graph, arguments: Sequence[Any]) -> None:
    if not any(id(argument) in _weights for argument in arguments):
        return
    types = set(_types(graph.as_graph_def()))
    # Python in a function is how the device's programs are called there. What only moves weights computes nothing, and
    # what reads none (TensorFlow's own function that computes first values) does not compute with them.
    if types.isdisjoint(_PYTHON) and any(map(_reads, types)) and any(map(_computes, types)):
        function = re.sub(r"^__(inference|forward|backward)_|(_\d+)+$", "", name)
        location = caller_location(function)  # other functions of this name, such as `call`, are called elsewhere
        if first_time("function on the host", location):
            _warn(function, location)


def _types(graph: Any) -> Iterator[str]:
    """Returns the types of all ops of a `GraphDef`, including its functions."""
    yield from (node.op for node in graph.node)
    for function in graph.library.function:
        yield from (node.op for node in function.node_def)


def _reads(kind: str) -> bool:
    return kind == "ReadVariableOp" or kind.startswith("Resource")


def _computes(kind: str) -> bool:
    return kind not in MOVING and kind != "Placeholder" and not kind.startswith("Assign")


def _warn(name: str, location: str) -> None:
    _log.warning(
        "ipu_tf: the tf.function `%s` computes with weights of an IPUStrategy's scope on TensorFlow's CPU, not on the "
        "device: user code called it. To run it on the device, call `strategy.run(function, args)`; fit, evaluate and "
        "predict run there by themselves.\n%s",
        name,
        location,
    )
