"""Markers for host callbacks of running programs: embedding tables in host memory, and printing.

TensorFlow takes markers for stateless: it would make one of two equal ones, and knows no order between others. So
each call takes a token from the call before it of the same kind, and gives one to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf.lowering.stablehlo.module import custom_call_target
from ipu_tf.lowering.tensorflow.markers import marker, stateful_marker

HOST_LOOKUP = "ipu.host_lookup"
HOST_UPDATE = "ipu.host_update"
HOST_APPLY = "ipu.host_apply"
PRINT = "ipu.print"
PIPELINE_DEPTH = "ipu.pipeline_depth"
HOST_CALLS = frozenset({HOST_LOOKUP, HOST_UPDATE, HOST_APPLY, PRINT, PIPELINE_DEPTH})

_TOKEN = tf.TensorSpec([], tf.int32)


def calls_host(operations: Iterable[Any]) -> bool:
    """Returns whether any op of a program calls the host while it runs."""
    return any(custom_call_target(operation) in HOST_CALLS for operation in operations)


def lookup_marker(table: str, indices: tf.Tensor, rows: tf.TensorSpec) -> tf.Tensor:
    """Looks up rows of a table on the host; left out if the result is not used."""
    results = marker(HOST_LOOKUP, [indices, _last_token(table)], [rows, _TOKEN], table=table)
    _keep_token(table, results[1])
    return results[0]


def update_marker(table: str, indices: tf.Tensor, changes: tf.Tensor) -> tf.Operation:
    """Adds to rows of a table on the host; always runs."""
    return _effect(HOST_UPDATE, table, [indices, changes], table=table)


def apply_marker(table: str) -> tf.Operation:
    """Applies the buffered updates of a table on the host; always runs."""
    return _effect(HOST_APPLY, table, [], table=table)


def print_marker(value: tf.Tensor, name: str) -> tf.Operation:
    """Prints a tensor on the host; always runs."""
    return _effect(PRINT, "print", [value], name=name)


def checked_micro_batch_count(count: tf.Tensor, overlap: int) -> tf.Tensor:
    """Checks a number of micro-batches on the host, at run time, against a pipeline's overlap; returns it."""
    [checked] = marker(PIPELINE_DEPTH, [count], [tf.TensorSpec([], tf.int32)], overlap=overlap)
    return checked


def _effect(target: str, kind: str, inputs: Sequence[tf.Tensor], **attributes: Any) -> tf.Operation:
    [token] = stateful_marker(target, [*inputs, _last_token(kind)], [_TOKEN], **attributes)
    _keep_token(kind, token)
    return token.op


def _last_token(kind: str) -> tf.Tensor:
    graph = tf.compat.v1.get_default_graph()
    # The graphs of functions start with what their outer graph has collected.
    own = [token for token in graph.get_collection(_collection(kind)) if token.graph is graph]
    return own[-1] if own else tf.constant(0)


def _keep_token(kind: str, token: tf.Tensor) -> None:
    token.graph.add_to_collection(_collection(kind), token)


def _collection(kind: str) -> str:
    return f"ipu_tf_host_calls/{kind}"
