"""Adds checks of operands' values to ops of a TensorFlow graph whose XLA kernels take any value.

TensorFlow's CPU kernels raise for these values; XLA's clamp an index, or compute something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_tf.lowering.stablehlo.check_markers import GROWS, LIST_ITEMS, RANDOM_INTEGERS
from ipu_tf.lowering.tensorflow.graph_body import GraphBody, control_inputs, data_inputs

_Operands = tuple[list[str], list[int], dict[str, Any]]


def may_fail(body: GraphBody, node: Any) -> bool:
    """Returns whether the operands of one of these ops are not constants, or constants for which it raises."""
    inputs, _, _ = ([], [], {}) if node.op in LIST_ITEMS else _OPERANDS[node.op](body, node)
    sources = [body.source(reference) for reference in inputs]
    constants = [tf.make_ndarray(s.attr["value"].tensor) for s in sources if s is not None and s.op == "Const"]
    if not constants or len(constants) < len(inputs):
        return True
    if node.op in RANDOM_INTEGERS:
        return bool(constants[0] >= constants[1])
    return node.op != "InvertPermutation" or sorted(constants[0]) != list(range(constants[0].size))


def _check_operands(body: GraphBody, node: Any, number: int) -> None:
    """Adds the check of a node's operands beside it."""
    inputs, dtypes, settings = _OPERANDS[node.op](body, node)
    common = {"number": number, "kind": node.op, "origin": node.name, "summarize": -1}
    inputs = [*inputs, *control_inputs(node)]
    body.add_check(node, inputs, dtypes, after=f"{node.name}/ipu_kept", **common, **settings)


def _list_index(body: GraphBody, node: Any) -> _Operands:
    """Returns the index, or indices, into a TensorList, and its length."""
    handle, index, *_ = data_inputs(node)
    length = body.add(f"{node.name}/ipu_length", "TensorListLength", [handle, *control_inputs(node)])
    grows = node.attr["resize_if_index_out_of_bounds"].b if "resize_if_index_out_of_bounds" in node.attr else False
    settings = {"message": GROWS} if grows else {}
    return [index, body.output(length, "length")], [tf.int32.as_datatype_enum] * 2, settings


def _sequence_lengths(body: GraphBody, node: Any) -> _Operands:
    sequences, lengths = data_inputs(node)
    return [sequences, lengths], [node.attr["T"].type, node.attr["Tlen"].type], {"axis": node.attr["seq_dim"].i}


def _permutation(body: GraphBody, node: Any) -> _Operands:
    return data_inputs(node), [node.attr["T"].type], {}


def _last_two(dtype: str) -> Callable[[GraphBody, Any], _Operands]:
    """Returns a function that gives the operands `minval` and `maxval` of an op."""
    return lambda body, node: (data_inputs(node)[-2:], [node.attr[dtype].type] * 2, {})


_OPERANDS: dict[str, Callable[[GraphBody, Any], _Operands]] = {
    "TensorListGetItem": _list_index,
    "TensorListSetItem": _list_index,
    "TensorListGather": _list_index,
    "ReverseSequence": _sequence_lengths,
    "InvertPermutation": _permutation,
    "RandomUniformInt": _last_two("Tout"),
    "StatelessRandomUniformInt": _last_two("dtype"),
    "StatelessRandomUniformIntV2": _last_two("dtype"),
}

OPERAND_CHECKS = dict.fromkeys(_OPERANDS, _check_operands)
"""What adds the check of an op, by its type."""
