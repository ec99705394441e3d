"""The part of a TensorFlow graph that some of its nodes need."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any


def pruned(graph_def: Any, targets: Iterable[str], given: Collection[str] = ()) -> Any:
    """A `GraphDef` with what `targets` depend on, and the whole function library.

    Args:
        graph_def: the graph.
        targets: names of nodes to keep.
        given: names of nodes that will be replaced from outside: they, and what they depend on, are left out.
    """
    nodes = {node.name: node for node in graph_def.node}
    kept: set[str] = set()
    waiting = list(targets)
    while waiting:
        name = waiting.pop()
        if name in kept or name in given:
            continue
        kept.add(name)
        waiting += [text.lstrip("^").split(":")[0] for text in nodes[name].input]
    result = type(graph_def)()
    result.versions.CopyFrom(graph_def.versions)
    result.library.CopyFrom(graph_def.library)
    result.node.extend(node for node in graph_def.node if node.name in kept)
    for node in result.node:
        # One program is placed as a whole; constraints between its nodes may name nodes that are left out.
        node.attr.pop("_class", None)
        node.device = ""
    return result
