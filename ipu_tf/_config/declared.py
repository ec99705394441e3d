"""Configuration classes that declare attributes in `__init__`, as Graphcore's `_ConfigBase` does.

    class Speed(DeclaredConfig):
        def __init__(self) -> None:
            \"\"\"The highest speed.\"\"\"
            self.limit: int = 3
            self._finalize_base_config()

The string before an assignment documents the attribute, an annotation gives its type, and a configuration as the value
makes a category. This project's own configuration declares attributes on the class: `ipu_tf._config.base`.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import textwrap
import types
import typing
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from ipu_tf._config.base import ConfigBase
from ipu_tf._config.option import Group, Option
from ipu_tf._config.treatment import no_effect
from ipu_tf._config.types import ValueType

_NO_DOC = "No description provided."
_UNKNOWN = no_effect("This attribute belongs to the program, not to the emulator.")


@dataclasses.dataclass(frozen=True)
class _Declaration:
    """One assignment to `self` in an `__init__`: the attribute, its annotation as text, and its documentation."""

    name: str
    annotation: str | None
    doc: str


class _Recorder:
    """Stands for `self` while an `__init__` runs that declares attributes."""

    def _finalize_base_config(self) -> None:
        """Graphcore's root configurations end with this call."""


class DeclaredConfig(ConfigBase):
    """A configuration whose attributes are those that its class's `__init__` assigns; see this module."""

    _declaring: ClassVar[Callable[[Any], None] | None] = None
    _declared: ClassVar[tuple[_Declaration, ...]] = ()

    if TYPE_CHECKING:

        def _finalize_base_config(self) -> None:
            """Ends a class's `__init__`, as in Graphcore's `_ConfigBase`; `_Recorder` has it at run time."""

    def __init_subclass__(cls) -> None:
        """Take over the class's `__init__`. It runs when the first instance is made: it may need what follows it."""
        super().__init_subclass__()
        if "__init__" in vars(cls):
            cls._declaring = staticmethod(vars(cls)["__init__"])
            cls._declared = tuple(_declarations(vars(cls)["__init__"]))
            del cls.__init__

    def __init__(self, prefix: str = "", deprecated_msg: str | None = None) -> None:
        """Set every attribute to its default; see `ConfigBase`."""
        self._make_members()
        super().__init__(prefix, deprecated_msg)

    @classmethod
    def declared_names(cls) -> set[str]:
        """The names of all attributes and categories."""
        return {*cls._members, *(declaration.name for declaration in cls._declared)}

    @classmethod
    def _make_members(cls) -> None:
        if cls._declaring is None or all(declaration.name in cls._members for declaration in cls._declared):
            return
        recorder = _Recorder()
        cls._declaring(recorder)
        for declaration in cls._declared:
            member = _member(declaration, getattr(recorder, declaration.name), cls._declaring)
            member.__set_name__(cls, declaration.name)
            setattr(cls, declaration.name, member)
            cls._members = {**cls._members, declaration.name: member}

    def _get_full_name(self, name: str) -> str:
        """The name of an attribute of this category, from the root of the configuration."""
        return self._prefix + name

    def _to_protobuf(self, pb: Any) -> None:
        """Have every category write itself to a record. Overridden by classes that write something."""
        for name, member in self._members.items():
            if isinstance(member, Group):
                getattr(self, name)._to_protobuf(pb)


def _declarations(init: Callable[..., None]) -> Iterator[_Declaration]:
    """The assignments to `self` in the source of an `__init__`."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(init))).body
    assert isinstance(function, ast.FunctionDef)
    doc = _NO_DOC
    for statement in function.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            doc = str(statement.value.value)
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        annotation = statement.annotation if isinstance(statement, ast.AnnAssign) else None
        for target in targets:
            if isinstance(target, ast.Attribute):
                yield _Declaration(target.attr, None if annotation is None else ast.unparse(annotation), doc)
        doc = _NO_DOC


def _member(declaration: _Declaration, value: Any, init: Callable[..., None]) -> Option[Any] | Group[Any]:
    if isinstance(value, ConfigBase):
        return Group(type(value), declaration.doc)
    value_type = None
    if declaration.annotation is not None:
        variables = inspect.getclosurevars(init)
        hint = eval(declaration.annotation, {**init.__globals__, **variables.nonlocals})
        value_type = value_type_of(hint)
    return Option(value, declaration.doc, _UNKNOWN, value_type=value_type)


def value_type_of(hint: Any) -> ValueType:
    """Converts an annotation to a strict value type: a bool is no int.

    Raises:
        ValueError: for a union of an int and an enumeration, whose saved values could not be told apart.

    Example:
        >>> value_type_of(typing.Union[int, list]).accepts(True)
        False
    """
    if isinstance(hint, type) and hint is not Any and not typing.get_origin(hint):
        return ValueType.of(hint)
    parts = typing.get_args(hint)
    enums = [part for part in parts if isinstance(part, type) and issubclass(part, enum.Enum)]
    if _is_union(hint) and int in parts and enums:
        raise ValueError(f"An attribute cannot have a Union of int and Enum. Received: {hint}.")
    return ValueType(str(hint), None, lambda value: _accepts(hint, value))


def _accepts(hint: Any, value: Any) -> bool:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin is None:
        return type(value) is hint
    if _is_union(hint):
        return any(_accepts(part, value) for part in parts)
    if type(value) is not origin:
        return False
    if origin is tuple and len(parts) == 2 and parts[1] is Ellipsis:
        parts = (parts[0],) * len(value)
    if origin is tuple:
        return len(value) == len(parts) and all(map(_accepts, parts, value))
    if origin is dict:
        return all(_accepts(parts[0], key) and _accepts(parts[1], item) for key, item in value.items())
    return all(_accepts(parts[0], item) for item in value)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)
