"""Parses and validates the JSON description of the program in an executable file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np

_ROLES = ("inputs", "streamed_inputs", "outputs", "streamed_outputs")
_FUNCTIONS = {"straight": ("run",), "loop": ("step", "goes_on")}
_SLOTS = {"straight": ("in",), "loop": ("in", "constants")}


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Input or output tensor of a program.

    Attributes:
        name: its name.
        shape: its dimensions.
        dtype: the name of its dtype, as numpy or ml_dtypes has it.
        place: index of the parameter or result, or for a stream the name of its queue.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    place: int | str

    @property
    def struct(self) -> jax.ShapeDtypeStruct:
        """Returns its shape and dtype for JAX."""
        return jax.ShapeDtypeStruct(self.shape, np.dtype(jax.numpy.dtype(self.dtype)))


@dataclasses.dataclass(frozen=True)
class Signature:
    """Inputs and outputs of a program.

    Attributes:
        inputs: parameters that are set once, when the program is started.
        streamed_inputs: the tensors of each infeed's elements.
        outputs: the program's results, new values of variables among them.
        streamed_outputs: the tensors of each outfeed's elements.
    """

    inputs: tuple[Tensor, ...]
    streamed_inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    streamed_outputs: tuple[Tensor, ...]


def signature_of(about: Mapping[str, Any]) -> Signature:
    """Returns the signature in a program's description."""
    return Signature(
        *(tuple(Tensor(t["name"], tuple(t["shape"]), t["dtype"], t["place"]) for t in about[role]) for role in _ROLES)
    )


def struct_of(text: Mapping[str, Any]) -> jax.ShapeDtypeStruct:
    """Parses a shape and dtype to a `jax.ShapeDtypeStruct`."""
    return jax.ShapeDtypeStruct(tuple(text["shape"]), jax.numpy.dtype(text["dtype"]))


def function_names(about: Mapping[str, Any]) -> set[str]:
    """Returns names of the archive's members that are functions."""
    return {part[role] for part in about["parts"] for role in _FUNCTIONS[part["kind"]]}


def parsed(text: bytes) -> dict[str, Any]:
    """Parses the description of a program.

    Raises:
        ValueError: if it lacks something, or something in it is not of the form that is written.
    """
    try:
        about = json.loads(text)
        _check(about)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return dict(about)


def _check(about: Any) -> None:
    _want(about["format"] == 1, "format", about["format"])
    _each(about, "name", [about["name"]], _is_text)
    for role in _ROLES:
        _each(about, role, about[role], _is_tensor)
    for role in ("hidden", "frozen"):
        _each(about, role, about[role].values(), _is_struct)
    _each(about, "frozen", [*about["frozen"], *about["weights"], *about["aliases"]], str.isdecimal)
    _each(about, "checked", about["checked"], _is_text)
    _each(about, "weights", about["weights"].values(), _is_text)
    _want(about["weights"].keys() == about["frozen"].keys(), "weights", [*about["weights"]])
    slots = {*(tensor["place"] for tensor in about["inputs"]), *map(int, about["frozen"])}
    _want(slots == set(range(len(slots))), "inputs", sorted(map(str, slots)))
    aliases = about["aliases"].items()
    _want(all(_is_number(p) and p in slots and int(r) < len(about["results"]) for r, p in aliases), "aliases", aliases)
    for part in about["parts"]:
        _check_part(part, slots)
        slots |= {slot for slot in part["out"] if slot is not None}
    _each(about, "results", about["results"], lambda slot: _is_number(slot) and slot in slots)


def _check_part(part: Any, slots: set[Any]) -> None:
    kind = part["kind"]
    _want(kind in _FUNCTIONS, "kind", kind)
    _each(part, kind, [part[role] for role in _FUNCTIONS[kind]], _is_text)
    for role in _SLOTS[kind]:
        _each(part, role, part[role], lambda slot: _is_number(slot) and slot in slots)
    _each(part, "out", part["out"], lambda slot: _is_number(slot) or (slot is None and kind == "loop"))
    for role in ("infeeds", "outfeeds", "sometimes"):
        _each(part, role, part[role], _is_text)


def _each(about: Any, name: str, values: Iterable[Any], check: Callable[[Any], bool]) -> None:
    for value in values:
        _want(check(value), name, value)


def _want(holds: bool, name: str, received: Any) -> None:
    if not holds:
        raise ValueError(f"'{name}' is of another form than is written. Received: {str(received)[:100]!r}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_tensor(value: Any) -> bool:
    return _is_struct(value) and _is_text(value["name"]) and (_is_number(value["place"]) or _is_text(value["place"]))


def _is_struct(value: Any) -> bool:
    dtype = jax.numpy.dtype(value["dtype"])
    known = _is_text(value["dtype"]) and dtype.name == value["dtype"] and not dtype.hasobject
    return known and isinstance(value["shape"], list) and all(map(_is_number, value["shape"]))
