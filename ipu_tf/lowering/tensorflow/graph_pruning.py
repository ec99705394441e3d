"""Prunes a `GraphDef` to the nodes that some of its nodes depend on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

_PRUNED = "_pruned"


def pruned(graph_def: Any, targets: Iterable[str], given: Collection[str] = (), functions: bool = False) -> Any:
    """Returns a `GraphDef` of the nodes that `targets` depend on, with the function library.

    Args:
        graph_def: the graph.
        targets: names of nodes to keep.
        given: names of nodes that will be replaced from outside: they, and what they depend on, are left out.
        functions: whether the functions of the library, too, keep only what their results depend on. Whatever they do
            not list among these, tf2xla compiles and runs all the same.
    """
    kept = _ancestors(graph_def.node, targets, given)
    result = type(graph_def)()
    result.versions.CopyFrom(graph_def.versions)
    result.library.CopyFrom(graph_def.library)
    result.node.extend(node for node in graph_def.node if node.name in kept)
    for node in result.node:
        place_anywhere(node)
    if functions:
        _prune_functions(result)
    return result


def part_of(graph_def: Any, names: Collection[str], alone: bool) -> Any:
    """Returns a `GraphDef` of some nodes of another one, with the function library.

    Args:
        graph_def: the graph.
        names: of the nodes.
        alone: whether the nodes come alone, without the order to run after nodes that are left out.
    """
    result = type(graph_def)()
    result.versions.CopyFrom(graph_def.versions)
    result.library.CopyFrom(graph_def.library)
    result.node.extend(node for node in graph_def.node if node.name in names)
    for node in result.node:
        place_anywhere(node)
        inputs = [text for text in node.input if not (alone and text[0] == "^" and text[1:] not in names)]
        del node.input[:]
        node.input.extend(inputs)
    return result


def place_anywhere(node: Any) -> None:
    """Clears a node's device and colocation."""
    # One program is placed as a whole; constraints between its nodes may name nodes that are left out.
    node.attr.pop("_class", None)
    node.device = ""


def _prune_functions(graph_def: Any) -> None:
    """Prunes each function to what its results depend on; renames it, as the old name is registered."""
    for function in graph_def.library.function:
        wanted = [*function.ret.values(), *function.control_ret.values()]
        used = _ancestors(function.node_def, (text.split(":")[0] for text in wanted), ())
        nodes = [node for node in function.node_def if node.name in used]
        del function.node_def[:]
        function.node_def.extend(nodes)
    rename_functions(graph_def, _PRUNED)


def rename_functions(graph_def: Any, suffix: str) -> None:
    """Adds a suffix to the names of a graph's functions, as the old names are registered for other bodies."""
    old = {function.signature.name for function in graph_def.library.function}
    for function in graph_def.library.function:
        function.signature.name += suffix
        _rename_calls(function.node_def, old, suffix)
    _rename_calls(graph_def.node, old, suffix)


def _rename_calls(nodes: Iterable[Any], old: Collection[str], suffix: str) -> None:
    for node in nodes:
        if node.op in old:
            node.op += suffix
        for attribute in node.attr.values():
            for called in [*([attribute.func] if attribute.HasField("func") else []), *attribute.list.func]:
                called.name += suffix if called.name in old else ""


def _ancestors(nodes: Iterable[Any], targets: Iterable[str], given: Collection[str]) -> set[str]:
    """Returns the names of `targets`, nodes or arguments, and of all nodes they depend on."""
    known = {node.name: node for node in nodes}
    found: set[str] = set()
    waiting = list(targets)
    while waiting:
        name = waiting.pop()
        if name in found or name in given or name not in known:
            continue
        found.add(name)
        waiting += [text.lstrip("^").split(":")[0] for text in known[name].input]
    return found
