"""`GraphBody`: nodes of a `GraphDef` or `FunctionDef`, to which the markers of checks are added."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf.lowering.stablehlo.check_markers import CHECK


class GraphBody:
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


def data_inputs(node: Any) -> list[str]:
    """Returns references to the tensors that a node reads."""
    return [reference for reference in node.input if not reference.startswith("^")]


def control_inputs(node: Any) -> Iterator[str]:
    """Returns references to the nodes that a node waits for."""
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
