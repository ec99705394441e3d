"""Lists variables of modules and classes that change while a program runs, by reading the source.

    register_state("...", value)          a kind of state, in the registry
    ContextVar, threading.local           a scope: it ends with its `with` block, or its thread
    threading.Lock and its like           guards state, and holds none
    functools.cache of a pure function    a memo: clearing it changes no result
    everything else that changes          loose

A dict, list or set that nothing changes is a constant table, and is not listed.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

REGISTER = "register_state"
SCOPES = {"ContextVar", "local"}
LOCKS = {"Lock", "RLock", "Condition"}
CHANGING = {"WeakKeyDictionary", "WeakValueDictionary", "WeakSet", "SimpleQueue", "Queue", "Event", "count"}
CACHES = {"cache", "lru_cache"}
CHANGES = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "put"),
    *("remove", "reverse", "set", "setdefault", "sort", "subtract", "update"),
}
"""Methods that change a container."""


@dataclasses.dataclass(frozen=True)
class Variable:
    """A variable of a module or class that may change, or the memo of a function.

    Attributes:
        module: dotted name.
        name: of the variable, `Class.name` for one of a class.
        what: "registered", "scope", "lock", "memo" or "loose".
        kind: the registered kind of state; "" otherwise.
        kept: why `clear_states` leaves it as it is; "" if it is cleared.
    """

    module: str
    name: str
    what: str
    kind: str = ""
    kept: str = ""


def variables(sources: Mapping[str, str]) -> list[Variable]:
    """Lists the changing variables of modules, given their sources by dotted name."""
    trees = {module: ast.parse(text) for module, text in sources.items()}
    changed = {name for module, tree in trees.items() for name in _changed_names(module, tree)}
    stateful = {f"{module}.{c.name}" for module, tree in trees.items() for c in _classes(tree) if _is_stateful(c)}
    return [
        variable
        for module, tree in trees.items()
        for variable in (*_of_body(module, tree, changed, stateful), *_memos(module, tree))
    ]


def package_sources(root: Path, packages: tuple[str, ...]) -> dict[str, str]:
    """Returns the source of every module of packages, by dotted name."""
    found = {}
    for path in sorted(path for package in packages for path in (root / package).rglob("*.py")):
        relative = path.relative_to(root)
        name = relative.parent if path.name == "__init__.py" else relative.with_suffix("")
        found[".".join(name.parts)] = path.read_text()
    return found


def _of_body(module: str, tree: ast.Module, changed: set[str], stateful: set[str]) -> Iterator[Variable]:
    rebound = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    imported = _imported(module, tree)
    for owner, name, value in _assignments(tree):
        full = f"{owner}.{name}" if owner else name
        called = _called(value)
        if called == REGISTER:
            assert isinstance(value, ast.Call) and isinstance(value.args[0], ast.Constant), (module, full)
            kept = next((k.value for k in value.keywords if k.arg == "kept"), ast.Constant(""))
            yield Variable(module, full, "registered", str(value.args[0].value), str(ast.literal_eval(kept)))
        elif called in SCOPES:
            yield Variable(module, full, "scope")
        elif called in LOCKS:
            yield Variable(module, full, "lock")
        elif (
            (name in rebound and not owner)
            or f"{module}.{full}" in changed
            or called in CHANGING
            # Objects in the body of a class are descriptors.
            or (not owner and imported.get(called, f"{module}.{called}") in stateful)
        ):
            yield Variable(module, full, "loose")


def _memos(module: str, tree: ast.Module) -> Iterator[Variable]:
    """Functions with a cache. One that returns nothing was called for its effect: then the cache is state."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(
            _called(d) in CACHES or _name(d) in CACHES for d in node.decorator_list
        ):
            effect = isinstance(node.returns, ast.Constant) and node.returns.value is None
            yield Variable(module, node.name, "loose" if effect else "memo")


def _assignments(tree: ast.Module) -> Iterator[tuple[str, str, ast.expr]]:
    """(class or "", name, value) of each assignment in the bodies of a module and its classes."""

    def within(body: list[ast.stmt], owner: str) -> Iterator[tuple[str, str, ast.expr]]:
        for node in body:
            if isinstance(node, ast.Assign):
                yield from ((owner, t.id, node.value) for t in node.targets if isinstance(t, ast.Name))
            elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
                yield owner, node.target.id, node.value
            elif isinstance(node, ast.ClassDef):
                yield from within(node.body, node.name)
            elif isinstance(node, (ast.If, ast.Try, ast.With)):
                yield from within([*node.body, *getattr(node, "orelse", [])], owner)

    return within(tree.body, "")


def _changed_names(module: str, tree: ast.Module) -> Iterator[str]:
    """Full names of variables of modules and classes that a module's functions change in place, with their owners."""
    imported = _imported(module, tree)
    for node, names, owner in _nodes(tree, None, ""):
        target = _changed(node)
        text = ast.unparse(target) if target is not None and names is not None else ""
        first, *rest = text.split(".")
        if not text.replace(".", "").isidentifier() or first in (names or set()) - {"self", "cls"}:
            continue
        start = f"{module}.{owner}" if first in ("self", "cls") else imported.get(first, f"{module}.{first}")
        yield from (".".join([start, *rest[:length]]) for length in range(len(rest) + 1))


def _changed(node: ast.AST) -> ast.expr | None:
    """Returns what a node changes in place, or may: `x` of `x[0] = 1`, `x.add(1)`, `del x[0]`, `x.y = 1`, `x += 1`."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in CHANGES:
        return node.value
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
        return node.value
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return node.target
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.value if _name(node.value) != "self" and _name(node.value) != "cls" else None
    return None


def _nodes(tree: ast.AST, names: frozenset[str] | None, owner: str) -> Iterator[tuple[ast.AST, Any, str]]:
    """Each node with the local names of the functions around it, None outside of functions, and its class."""
    for node in ast.iter_child_nodes(tree):
        inner, within = names, owner
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            inner = (names or frozenset()) | _locals(node)
        elif isinstance(node, ast.ClassDef):
            within = node.name
        yield node, inner, within
        yield from _nodes(node, inner, within)


def _locals(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    names = {a.arg for a in [*named, *filter(None, (arguments.vararg, arguments.kwarg))]}
    shared = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return names | (stored - shared)


def _classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def _is_stateful(node: ast.ClassDef) -> bool:
    """Whether objects of a class change after they are made."""
    decorators = [ast.unparse(d) for d in node.decorator_list]
    if any("dataclass" in d for d in decorators):
        return not any("frozen=True" in d for d in decorators)
    methods = [m for m in node.body if isinstance(m, ast.FunctionDef) and m.name not in ("__init__", "__new__")]
    return any(_changes_self(inner) for method in methods for inner in ast.walk(method))


def _changes_self(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
        return _name(node.value) == "self"
    target = _changed(node)
    return isinstance(target, ast.Attribute) and _name(target.value) == "self"


def _imported(module: str, tree: ast.Module) -> dict[str, str]:
    """Full names by the names that a module imports them under."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.asname: alias.name for alias in node.names if alias.asname}
    return found


def _called(value: ast.AST) -> str:
    """The last part of the name of a called function: `count` of `itertools.count()`; "" for anything else."""
    return _name(value.func) if isinstance(value, ast.Call) else ""


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
