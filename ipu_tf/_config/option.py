"""Members of a configuration class: `Option` holds a value, `Group` holds further members."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Never, NoReturn, Self, TypeVar, overload

from ipu_tf._config.metadata import AttributeMetadata
from ipu_tf._config.treatment import Treatment
from ipu_tf._config.types import ValueType

if TYPE_CHECKING:
    from ipu_tf._config.base import ConfigBase

Value = TypeVar("Value")
Category = TypeVar("Category", bound="ConfigBase")


class Option(Generic[Value]):
    """One attribute. It is a descriptor, so editors and type checkers know the attribute and its type."""

    def __init__(
        self,
        default: Value,
        doc: str,
        treatment: Treatment,
        *,
        value_type: ValueType | None = None,
        exceptions: Sequence[tuple[Callable[[Value], bool], Treatment]] = (),
        of_process: Callable[[], Value] | None = None,
        least: float | None = None,
        most: float | None = None,
    ) -> None:
        """Declare an attribute.

        Args:
            default: its first value; each configuration has a copy of its own.
            doc: what it does.
            treatment: what the emulator does with a value other than the default.
            value_type: what it accepts; by default exactly the type of `default`.
            exceptions: pairs of a test of values and the treatment of those that pass; the first match
                counts.
            of_process: returns its first value where that depends on the process; `default` is that of most.
            least: the least number it may be; None for any.
            most: the greatest.
        """
        self.__doc__ = doc
        self._default = default
        self._treatment = treatment
        self._value_type = dataclasses.replace(value_type or ValueType.of(type(default)), least=least, most=most)
        self._exceptions = tuple(exceptions)
        self._of_process = of_process

    def __set_name__(self, owner: type[ConfigBase], name: str) -> None:
        """Stores the name under which the class declares the attribute."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type[ConfigBase]) -> Self: ...

    @overload
    def __get__(self, instance: ConfigBase, owner: type[ConfigBase]) -> Value: ...

    def __get__(self, instance: ConfigBase | None, owner: type[ConfigBase]) -> Self | Value:
        """The value that `instance` holds; on the class, this declaration."""
        if instance is None:
            return self
        value: Value = instance.__dict__[self._name]
        return value

    def __set__(self, instance: ConfigBase, value: Value) -> None:
        """Store `value` in `instance`, if it has the option's type."""
        metadata = instance.get_attribute_metadata(self._name)
        metadata.check_type(value)
        metadata.warn_if_deprecated()
        instance.__dict__[self._name] = value

    def initial(self, prefix: str, deprecated_msg: str | None) -> Value:
        """A fresh default value."""
        return copy.deepcopy(self._default) if self._of_process is None else self._of_process()

    def describe(self, name: str, deprecated_msg: str | None) -> AttributeMetadata:
        """The metadata of the attribute under its full `name`."""
        return AttributeMetadata(
            name,
            self.__doc__ or "",
            deprecated_msg=deprecated_msg,
            value_type=self._value_type,
            default=self._default,
            treatments=(self._treatment, *(treatment for _, treatment in self._exceptions)),
        )

    def treatment_of(self, value: Value) -> Treatment | None:
        """Returns the treatment of `value` in emulation; None for the default."""
        if value == self._default:
            return None
        return next((treatment for test, treatment in self._exceptions if test(value)), self._treatment)


class Group(Generic[Category]):
    """A category of attributes: `floating_point_behaviour`, for example. It cannot be assigned to."""

    def __init__(self, category: type[Category], doc: str) -> None:
        """Declare a category whose members are those of the class `category`."""
        self.__doc__ = doc
        self._category = category

    def __set_name__(self, owner: type[ConfigBase], name: str) -> None:
        """Stores the name under which the class declares the category."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type[ConfigBase]) -> Self: ...

    @overload
    def __get__(self, instance: ConfigBase, owner: type[ConfigBase]) -> Category: ...

    def __get__(self, instance: ConfigBase | None, owner: type[ConfigBase]) -> Self | Category:
        """The category's object that `instance` holds; on the class, this declaration."""
        if instance is None:
            return self
        category: Category = instance.__dict__[self._name]
        return category

    def __set__(self, instance: ConfigBase, value: Never) -> NoReturn:
        """Raise the error of assigning to a category."""
        instance.get_attribute_metadata(self._name).check_type(value)
        raise AssertionError(f"{self._name} accepted a value although it is a category")

    def initial(self, prefix: str, deprecated_msg: str | None) -> Category:
        """A fresh object for the category, whose members' full names start with `prefix`."""
        return self._category(prefix, deprecated_msg)

    def describe(self, name: str, deprecated_msg: str | None) -> AttributeMetadata:
        """The metadata of the category under its full `name`."""
        return AttributeMetadata(name, self.__doc__ or "", deprecated_msg=deprecated_msg)


@dataclasses.dataclass(frozen=True)
class Setting:
    """An option as one configuration holds it.

    Attributes:
        metadata: the option's metadata, with its full name.
        option: its declaration.
        owner: the configuration object or category that holds the value.
        attribute: the name of the option in `owner`.
    """

    metadata: AttributeMetadata
    option: Option[Any]
    owner: ConfigBase
    attribute: str

    @property
    def value(self) -> Any:
        """The value that `owner` holds now."""
        return getattr(self.owner, self.attribute)

    def copy_value(self) -> Any:
        """A copy of the value, which later changes of the configuration leave alone."""
        return copy.deepcopy(self.value)

    def plain_value(self) -> Any:
        """A copy of the value that JSON can hold, apart from tuples: an enumeration as its int."""
        return self.value.value if isinstance(self.value, Enum) else self.copy_value()

    def restore(self, value: Any) -> Any:
        """The value whose `plain_value` is `value`, checked.

        Raises:
            TypeError: if it has the wrong type.
            ValueError: if it is no member of the option's enumeration.
        """
        kind = self.metadata.actual_type
        restored = copy.deepcopy(value)
        if kind is not None and issubclass(kind, Enum) and type(value) is int:
            restored = self._member(kind, value)
        self.metadata.check_type(restored)
        return restored

    def _member(self, kind: type[Enum], value: int) -> Enum:
        known = {member.value: member for member in kind}
        if value not in known:
            wanted = ", ".join(f"{number} ({member.name})" for number, member in known.items())
            raise ValueError(f"{self.metadata.name} must be one of {wanted}. Received: {value}.")
        return known[value]
