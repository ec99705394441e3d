"""Rewrites assertions of a TensorFlow graph to markers, since tf2xla drops `Assert` and `CheckNumerics`.

    Assert(condition, data)      becomes     ipu.check(condition, data)  ->  Assert(True, [its result])
    CheckNumerics(x)                         ipu.check(x)  ->  Assert(True, [its result]);  Identity(x)
    InvertPermutation(x)                     beside it: ipu.check(x); `operand_checks.py` has the ops of this kind

In loops, branches and functions too. What an assertion shows as text is read here: the device has no strings.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf._state.numbers import next_number
from ipu_tf.lowering.stablehlo.check_markers import NAN_SUMMARY
from ipu_tf.lowering.tensorflow.graph_body import GraphBody, control_inputs, data_inputs
from ipu_tf.lowering.tensorflow.graph_pruning import place_anywhere, rename_functions
from ipu_tf.lowering.tensorflow.operand_checks import OPERAND_CHECKS, may_fail

_REDUCED = 8  # TensorFlow's TensorDebugMode.REDUCE_INF_NAN_THREE_SLOTS
_NO_TEXT = "<text that only the host could make>"


def with_checks(graph_def: Any) -> bool:
    """Rewrites the assertions of a `GraphDef` in place, and checks values of operands; returns whether there were any.

    Its functions have other names afterwards if there were.
    """
    bodies = [
        GraphBody(graph_def.node, in_function=False),
        *(GraphBody(function.node_def, in_function=True) for function in graph_def.library.function),
    ]
    found = [(body, node) for body in bodies for node in body.nodes if _concerns(body, node)]
    for number, (body, node) in enumerate(found):
        _REWRITINGS[node.op](body, node, number)
    if found:
        rename_functions(graph_def, f"_checked_{next_number('graph with checks')}")
        for function in graph_def.library.function:
            for node in function.node_def:
                place_anywhere(node)
    return bool(found)


def _concerns(body: GraphBody, node: Any) -> bool:
    if node.op == "Assert":
        return not _is_true(body.source(node.input[0]))
    if node.op == "DebugNumericSummaryV2":
        return node.attr["tensor_debug_mode"].i == _REDUCED
    return node.op in _REWRITINGS and (node.op not in OPERAND_CHECKS or may_fail(body, node))


def _is_true(node: Any | None) -> bool:
    return node is not None and node.op == "Const" and bool(tf.make_ndarray(node.attr["value"].tensor))


def _rewrite_assert(body: GraphBody, node: Any, number: int) -> None:
    condition, *data = data_inputs(node)
    dtypes = list(node.attr["T"].list.type)
    pieces = [_piece(body, reference, dtype) for reference, dtype in zip(data, dtypes, strict=True)]
    shown = [i for i, piece in enumerate(pieces) if piece is None]
    body.add_check(
        node,
        [condition, *(data[i] for i in shown), *control_inputs(node)],
        [tf.bool.as_datatype_enum, *(dtypes[i] for i in shown)],
        after=node.name,
        number=number,
        kind=node.op,
        origin=node.name,
        pieces=pieces,
        summarize=node.attr["summarize"].i if "summarize" in node.attr else 3,
    )


def _rewrite_numerics(body: GraphBody, node: Any, number: int) -> None:
    [value], dtype, controls = data_inputs(node), node.attr["T"].type, control_inputs(node)
    kept = f"{node.name}/ipu_kept"
    message = node.attr["message"].s.decode(errors="replace")
    settings = {"number": number, "kind": node.op, "origin": node.name, "message": message, "summarize": -1}
    body.add_check(node, [value, *controls], [dtype], after=kept, **settings)
    body.make_identity(node, value, dtype, [f"^{kept}"])


def _rewrite_summary(body: GraphBody, node: Any, number: int) -> None:
    [value], controls = data_inputs(node), control_inputs(node)
    name, dtypes = f"{node.name}/ipu_summary", [node.attr["T"].type]
    marker = body.add_marker(name, NAN_SUMMARY, [value, *controls], dtypes, tf.float32, [3], {})
    body.make_identity(node, body.output(marker, "results"), tf.float32.as_datatype_enum)


def _piece(body: GraphBody, reference: str, dtype: int) -> str | None:
    """Returns the text of an assertion's constant input; None for a tensor that the program computes."""
    if dtype in (tf.variant.as_datatype_enum, tf.resource.as_datatype_enum):
        return f"<{tf.as_dtype(dtype).name}>"
    if dtype != tf.string.as_datatype_enum:
        return None
    node = body.source(reference)
    if node is None or node.op != "Const":
        return _NO_TEXT
    texts = [text.decode(errors="replace") for text in tf.make_ndarray(node.attr["value"].tensor).ravel()]
    return texts[0] if len(texts) == 1 else " ".join(texts)


_REWRITINGS = {
    "Assert": _rewrite_assert,
    "CheckNumerics": _rewrite_numerics,
    "CheckNumericsV2": _rewrite_numerics,
    "DebugNumericSummaryV2": _rewrite_summary,
    **OPERAND_CHECKS,
}
