"""Digests of jaxprs: equal for functions that compute the same by the same equations, in every process."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np
from jax.extend import core

_NOT_EVALUATED = frozenset(
    {
        "jvp_jaxpr_fun",
        "jvp",
        "fwd_jaxpr_thunk",
        "bwd",
        "out_trees",
        "computation",
        "select_jaxpr_thunk",
    }
)
"""Parameters that are Python functions and are not evaluated: derivatives, and what a jaxpr beside them has."""
_RANDOM_KEYS = ("fry", "rbg", "urbg")
"""Tags of JAX's own random number generators."""


def jaxpr_digest(function: core.ClosedJaxpr) -> str:
    """Returns the SHA-256 of a traced function with its constants, in hexadecimal digits; "" if it has none.

    It has none if it calls the host, or if a parameter of an operation is of a type that is not known here.
    """
    try:
        return _Digest().of(function)
    except _Unknown:
        return ""


class _Unknown(Exception):
    """Raised for what has no text that is the same in every process."""


class _Digest:
    """Digests of jaxprs inside of each other: one that is called many times is read once."""

    def __init__(self) -> None:
        self._graphs: dict[int, str] = {}

    def of(self, function: core.ClosedJaxpr) -> str:
        """Returns the digest of a jaxpr and its constants."""
        return _hash((self._graph(function.jaxpr), *map(self._text, function.consts)))

    def _graph(self, graph: Any) -> str:
        if id(graph) not in self._graphs:  # the whole function holds it, so that its address stays its own
            self._graphs[id(graph)] = _hash(self._lines(graph))
        return self._graphs[id(graph)]

    def _lines(self, graph: Any) -> Iterable[str]:
        numbers: dict[Any, int] = {}

        def atom(each: Any) -> str:
            return self._text(each) if isinstance(each, core.Literal) else str(numbers[each])

        def named(each: Any) -> str:
            numbers[each] = len(numbers)
            return self._text(each.aval)

        yield from (f"constant {named(each)}" for each in graph.constvars)
        yield from (f"argument {named(each)}" for each in graph.invars)
        for eqn in graph.eqns:
            if any(type(each).__name__ != "NamedAxisEffect" for each in eqn.effects):  # collectives have these
                raise _Unknown
            read = " ".join(map(atom, eqn.invars))
            given = self._mapping({key: value for key, value in eqn.params.items() if key not in _NOT_EVALUATED})
            made = " ".join(map(named, eqn.outvars))
            yield f"{eqn.primitive.name} {read} {given} {eqn.ctx} {made}"
        yield "result " + " ".join(map(atom, graph.outvars))

    def _text(self, value: Any) -> str:
        name = type(value).__name__
        if name == "PRNGImpl" and value.tag in _RANDOM_KEYS:  # a tuple of functions
            return f"{name} {value.tag}"
        for kinds, text in self._KINDS:
            if isinstance(value, kinds):
                return f"{type(value).__qualname__} {text(self, value)}"
        if name == "UnspecifiedValue" or _without_mesh(value):
            return name
        if dataclasses.is_dataclass(value):
            return f"{name} {self._mapping({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})}"
        raise _Unknown(type(value), value)

    def _mapping(self, value: Mapping[Any, Any]) -> str:
        return self._several(f"{self._text(key)}: {self._text(each)}" for key, each in sorted(value.items()))

    def _aval(self, value: Any) -> str:
        if value.sharding is not None and not _without_mesh(value.sharding):
            raise _Unknown
        return f"{_dtype(value.dtype)}{list(value.shape)}{' weak' if value.weak_type else ''} {value.memory_space}"

    def _literal(self, value: Any) -> str:
        return f"{self._text(value.val)} {self._text(value.aval)}"

    def _array(self, value: Any) -> str:
        held = np.asarray(value)
        return f"{_dtype(held.dtype)}{list(held.shape)} {hashlib.sha256(held.tobytes()).hexdigest()}"

    @staticmethod
    def _several(texts: Iterable[str]) -> str:
        return f"({', '.join(texts)})"

    _KINDS: tuple[tuple[Any, Callable[[_Digest, Any], str]], ...] = (
        (enum.Enum, lambda self, value: value.name),
        ((type(None), bool, int, float, complex, str, bytes), lambda self, value: repr(value)),
        (core.Literal, lambda self, value: self._literal(value)),
        ((tuple, list), lambda self, value: self._several(map(self._text, value))),
        (Mapping, lambda self, value: self._mapping(value)),
        ((set, frozenset), lambda self, value: self._several(sorted(map(self._text, value)))),
        (np.dtype, lambda self, value: _dtype(value)),
        ((np.ndarray, np.generic, jax.Array), lambda self, value: self._array(value)),
        (type, lambda self, value: f"{value.__module__}.{value.__qualname__}"),
        (core.ClosedJaxpr, lambda self, value: self.of(value)),
        (core.Jaxpr, lambda self, value: self._graph(value)),
        (jax.core.ShapedArray, lambda self, value: self._aval(value)),
        (core.Primitive, lambda self, value: value.name),
    )


def _without_mesh(value: Any) -> bool:
    """Returns whether a value is a mesh without devices, or a sharding over one: of what runs on one device."""
    mesh = getattr(value, "mesh", value)
    return type(mesh).__name__ in ("Mesh", "AbstractMesh") and mesh.empty


def _dtype(dtype: Any) -> str:
    if isinstance(dtype, np.dtype):
        return f"{dtype} {dtype.str}"
    if str(dtype) in (f"key<{tag}>" for tag in _RANDOM_KEYS):
        return str(dtype)
    raise _Unknown


def _hash(texts: Iterable[str]) -> str:
    found = hashlib.sha256()
    for text in texts:
        found.update(text.encode() + b"\n")
    return found.hexdigest()
