"""Rewrites assertions of a TensorFlow graph to markers, since tf2xla drops `Assert` and `CheckNumerics`.

    Assert(condition, data)      becomes     ipu.check(condition, data)  ->  Assert(True, [its result])
    CheckNumerics(x)                         ipu.check(x)  ->  Assert(True, [its result]);  Identity(x)
    TensorListSetItem(list, i)               beside it, if the list may grow: ipu.check(i, TensorListLength(list))

In loops, branches and functions too. What an assertion shows as text is read here: the device has no strings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._state.numbers import next_number
from ipu_tf.lowering.stablehlo.checks import CHECK, NAN_SUMMARY
from ipu_tf.lowering.tensorflow.graph_pruning import place_anywhere, rename_functions

_REDUCED = 8  # TensorFlow's TensorDebugMode.REDUCE_INF_NAN_THREE_SLOTS
_NO_TEXT = "<text that only the host could make>"


def with_checks(graph_def: Any) -> bool:
    """Rewrites the assertions of a `GraphDef` in place; returns whether there were any.

    Its functions have other names afterwards if there were.
    """
    bodies = [
        _Body(graph_def.node, in_function=False),
        *(_Body(function.node_def, in_function=True) for function in graph_def.library.function),
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


class _Body:
    """Nodes of a graph or of a function.

    Args:
        nodes: the repeated field of a `GraphDef` or `FunctionDef`.
        in_function: whether outputs are named as functions do, `node:output:0`, not `node:0`.
    """

    def __init__(self, nodes: Any, in_function: bool) -> None:
        self._field = nodes
        self._in_function = in_function
        self.nodes = list(nodes)
        self._by_name = {node.name: node for node in self.nodes}

    def source(self, reference: str) -> Any | None:
        """Returns the node that computes a tensor, behind identities; None for a function's argument."""
        node = self._by_name.get(reference.split(":")[0])
        while node is not None and node.op == "Identity":
            node = self._by_name.get(node.input[0].split(":")[0])
        return node

    def add(self, name: str, op: str, inputs: Iterable[str], **attributes: Any) -> Any:
        """Adds a node."""
        node = self._field.add(name=name, op=op, input=inputs)
        for key, value in attributes.items():
            node.attr[key].CopyFrom(value)
        return node

    def output(self, node: Any, argument: str) -> str:
        """Returns the reference to the first tensor of a node's output `argument`."""
        return f"{node.name}:{argument}:0" if self._in_function else node.name

    def add_check(self, node: Any, inputs: Sequence[str], dtypes: Sequence[int], after: str, **settings: Any) -> None:
        """Adds the marker of a check, and the op `after` that keeps it, in place of a node."""
        marker = self.add_marker(f"{node.name}/ipu_check", CHECK, inputs, dtypes, tf.int32, [], settings)
        true = self.add(f"{node.name}/ipu_true", "Const", [], dtype=_type(tf.bool), value=_tensor(True))
        kept = {"T": _types([tf.int32.as_datatype_enum]), "summarize": _integer(3)}
        condition, data = self.output(true, "output"), self.output(marker, "results")
        if after == node.name:
            self._replace(node, "Assert", [condition, data], kept)
        else:
            self.add(after, "Assert", [condition, data], **kept)

    def add_marker(
        self,
        name: str,
        target: str,
        inputs: Sequence[str],
        dtypes: Sequence[int],
        result: tf.DType,
        shape: Sequence[int],
        settings: dict[str, Any],
    ) -> Any:
        """Adds a marker with one result."""
        return self.add(
            name,
            "XlaCustomCallV2",
            inputs,
            call_target_name=_text(target),
            backend_config=_text(json.dumps(settings)),
            has_side_effect=tf.compat.v1.AttrValue(b=target == CHECK),
            operand_dtypes=_types(dtypes),
            result_dtypes=_types([result.as_datatype_enum]),
            result_shapes=_shapes(shape),
        )

    def make_identity(self, node: Any, reference: str, dtype: int, after: Sequence[str] = ()) -> None:
        """Replaces a node by an identity of the same name."""
        self._replace(node, "Identity", [reference, *after], {"T": tf.compat.v1.AttrValue(type=dtype)})

    def _replace(self, node: Any, op: str, inputs: Sequence[str], attributes: dict[str, Any]) -> None:
        node.op = op
        del node.input[:]
        node.input.extend(inputs)
        node.attr.clear()
        for key, value in attributes.items():
            node.attr[key].CopyFrom(value)


def _concerns(body: _Body, node: Any) -> bool:
    if node.op == "Assert":
        return not _is_true(body.source(node.input[0]))
    if node.op == "TensorListSetItem":
        return bool(node.attr["resize_if_index_out_of_bounds"].b)
    if node.op == "DebugNumericSummaryV2":
        return node.attr["tensor_debug_mode"].i == _REDUCED
    return node.op in _REWRITINGS


def _is_true(node: Any | None) -> bool:
    return node is not None and node.op == "Const" and bool(tf.make_ndarray(node.attr["value"].tensor))


def _rewrite_assert(body: _Body, node: Any, number: int) -> None:
    condition, *data = _data(node)
    dtypes = list(node.attr["T"].list.type)
    pieces = [_piece(body, reference, dtype) for reference, dtype in zip(data, dtypes, strict=True)]
    shown = [i for i, piece in enumerate(pieces) if piece is None]
    body.add_check(
        node,
        [condition, *(data[i] for i in shown), *_controls(node)],
        [tf.bool.as_datatype_enum, *(dtypes[i] for i in shown)],
        after=node.name,
        number=number,
        kind=node.op,
        origin=node.name,
        pieces=pieces,
        summarize=node.attr["summarize"].i if "summarize" in node.attr else 3,
    )


def _rewrite_numerics(body: _Body, node: Any, number: int) -> None:
    [value], dtype, controls = _data(node), node.attr["T"].type, _controls(node)
    kept = f"{node.name}/ipu_kept"
    message = node.attr["message"].s.decode(errors="replace")
    settings = {"number": number, "kind": node.op, "origin": node.name, "message": message, "summarize": -1}
    body.add_check(node, [value, *controls], [dtype], after=kept, **settings)
    body.make_identity(node, value, dtype, [f"^{kept}"])


def _rewrite_summary(body: _Body, node: Any, number: int) -> None:
    [value], controls = _data(node), _controls(node)
    name, dtypes = f"{node.name}/ipu_summary", [node.attr["T"].type]
    marker = body.add_marker(name, NAN_SUMMARY, [value, *controls], dtypes, tf.float32, [3], {})
    body.make_identity(node, body.output(marker, "results"), tf.float32.as_datatype_enum)


def _rewrite_growth(body: _Body, node: Any, number: int) -> None:
    handle, index, _ = _data(node)
    length = body.add(f"{node.name}/ipu_length", "TensorListLength", [handle, *_controls(node)])
    dtypes = [tf.int32.as_datatype_enum] * 2
    settings = {"number": number, "kind": node.op, "origin": node.name, "summarize": -1}
    body.add_check(node, [index, body.output(length, "length")], dtypes, after=f"{node.name}/ipu_kept", **settings)


def _piece(body: _Body, reference: str, dtype: int) -> str | None:
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


def _data(node: Any) -> list[str]:
    return [reference for reference in node.input if not reference.startswith("^")]


def _controls(node: Any) -> Iterator[str]:
    return (reference for reference in node.input if reference.startswith("^"))


def _type(dtype: tf.DType) -> Any:
    return tf.compat.v1.AttrValue(type=dtype.as_datatype_enum)


def _types(dtypes: Sequence[int]) -> Any:
    return tf.compat.v1.AttrValue(list=tf.compat.v1.AttrValue.ListValue(type=dtypes))


def _shapes(shape: Sequence[int]) -> Any:
    shapes = [tf.TensorShape(shape).as_proto()]
    return tf.compat.v1.AttrValue(list=tf.compat.v1.AttrValue.ListValue(shape=shapes))


def _integer(value: int) -> Any:
    return tf.compat.v1.AttrValue(i=value)


def _text(value: str) -> Any:
    return tf.compat.v1.AttrValue(s=value.encode())


def _tensor(value: bool) -> Any:
    return tf.compat.v1.AttrValue(tensor=tf.make_tensor_proto(value))


_REWRITINGS = {
    "Assert": _rewrite_assert,
    "CheckNumerics": _rewrite_numerics,
    "CheckNumericsV2": _rewrite_numerics,
    "DebugNumericSummaryV2": _rewrite_summary,
    "TensorListSetItem": _rewrite_growth,
}
