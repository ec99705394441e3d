"""Nested configuration objects: attributes declared on a class, with strict types and suggestions."""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeVar

from ipu_tf._config.messages import LOGGER
from ipu_tf._config.metadata import AttributeMetadata
from ipu_tf._config.option import Group, Option, Setting

_Config = TypeVar("_Config", bound="type[ConfigBase]")
_MISSING_SHOWN = 5


class ConfigAttributeError(ValueError, AttributeError):
    """The configuration has no such attribute.

    It is a ValueError, as the interface promises, and also an AttributeError, so that `hasattr`, `copy` and
    `pickle` take it for what it is.
    """


class ConfigBase:
    """A configuration object whose attributes are `Option` and `Group` members of its class.

    Example:
        >>> from ipu_tf._config.option import Option
        >>> from ipu_tf._config.treatment import COMPILER
        >>> class Speed(ConfigBase):
        ...     limit = Option(3, "The highest speed.", COMPILER)
        >>> speed = Speed()
        >>> speed.limit = 4
        >>> speed
        Speed:
          limit = 4
    """

    _members: ClassVar[Mapping[str, Option[Any] | Group[Any]]] = {}
    _deprecations: ClassVar[Mapping[str, str]] = {}
    _prefix: str = ""
    _deprecated_msg: str | None = None

    def __init_subclass__(cls) -> None:
        """Collect the members that the class declares, after those it inherits."""
        own = {name: item for name, item in vars(cls).items() if isinstance(item, Option | Group)}
        cls._members = {**cls._members, **own}

    @classmethod
    def declared_names(cls) -> set[str]:
        """The names of all attributes and categories."""
        return set(cls._members)

    def __init__(self, prefix: str = "", deprecated_msg: str | None = None) -> None:
        """Set every attribute to its default.

        Args:
            prefix: what precedes attribute names in full names, with its dot; empty for the root.
            deprecated_msg: the deprecation of the category that this object is, passed on to its members.
        """
        self.__dict__.update(_prefix=prefix, _deprecated_msg=deprecated_msg)
        for name, member in self._members.items():
            self.__dict__[name] = member.initial(f"{prefix}{name}.", _deprecation(self, name))

    if not TYPE_CHECKING:  # a type checker has the declared attributes, and reports any other

        def __getattr__(self, name: str) -> NoReturn:
            """Raise the error for an attribute that does not exist, with a suggestion."""
            raise ConfigAttributeError(_unknown(self, name))

        def __setattr__(self, name: str, value: object) -> None:
            """Set an existing attribute; no others can be added.

            Raises:
                ValueError: if there is no such attribute.
                TypeError: if `value` has the wrong type or the attribute is a category.
            """
            if name not in self._members:
                raise ConfigAttributeError(_unknown(self, name))
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> NoReturn:
        """Refuse: every configuration has every attribute."""
        raise ConfigAttributeError(f"'{name}' cannot be deleted. Set it to its default instead.")

    def get_attribute_metadata(self, attr: str) -> AttributeMetadata:
        """Returns the metadata of the attribute or category `attr`, a dotted name relative to this object.

        Raises:
            ValueError: if there is none.
        """
        config: ConfigBase = self
        *parents, last = attr.split(".")
        try:
            for parent in parents:
                config = _member_group(config, parent)
            return _metadata(config, last)
        except ConfigAttributeError as error:
            raise ConfigAttributeError(f"Could not get attribute metadata for '{attr}': {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """A flat dict from full attribute names to copies of the values. Enumerations become their ints."""
        return {item.metadata.name: item.plain_value() for item in settings_of(self)}

    def from_dict(self, dct: Mapping[str, Any]) -> None:
        """Take the values of a dict made by `to_dict`, all or none of them.

        Attributes that `dct` lacks keep their values, and one log line names them. A category ignores names
        of other categories.

        Raises:
            ValueError: if `dct` has an unknown attribute, or an int that is no member of an enumeration.
            TypeError: if a value has the wrong type, or `dct` is no dict of names.
        """
        if not isinstance(dct, Mapping):
            raise TypeError(f"A configuration is read from a dict as `to_dict` makes it. Received: {dct!r:.200}.")
        settings = {item.metadata.name: item for item in settings_of(self)}
        for name in dct:
            if not isinstance(name, str):
                raise TypeError(f"A configuration is read from a dict of attribute names. Received the key: {name!r}.")
            if name.startswith(self._prefix) and name not in settings:
                raise ConfigAttributeError(_invalid(name, difflib.get_close_matches(name, settings)))
        restored = [(item, item.restore(dct[name])) for name, item in settings.items() if name in dct]
        changed = [(item, value) for item, value in restored if value != item.value]
        for item, _ in changed:
            item.metadata.warn_if_deprecated()
        for item, value in changed:
            item.owner.__dict__[item.attribute] = value
        _log_missing([name for name in settings if name not in dct])

    def to_json(self) -> str:
        """The attributes as a JSON object: `to_dict` as text. Tuples become lists."""
        return json.dumps(self.to_dict())

    def from_json(self, json_cfg: str) -> None:
        """Take the values of a JSON object made by `to_json`; see `from_dict`.

        Raises:
            TypeError: for JSON that is no object, or anything but a text.
            ValueError: for a text that is no JSON, and as `from_dict`.
        """
        if not isinstance(json_cfg, (str, bytes, bytearray)):
            raise TypeError(f"A configuration is read from a JSON object as text. Received: {json_cfg!r:.200}.")
        try:
            values = json.loads(json_cfg)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"A configuration is read from a JSON object. Received no JSON: {error}.") from None
        if not isinstance(values, dict):
            raise TypeError(f"A configuration is read from a JSON object. Received: {json_cfg!r:.200}.")
        self.from_dict(values)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """An independent configuration with the same values."""
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def __str__(self) -> str:
        """One `name = value` line for each attribute."""
        lines = ((item.metadata.name, item.value) for item in settings_of(self))
        return "\n".join(f"{name} = {value if isinstance(value, Enum) else repr(value)}" for name, value in lines)

    def __repr__(self) -> str:
        """The class name above the indented lines of `str`."""
        return "\n  ".join([f"{type(self).__name__}:", *str(self).splitlines()])


def settings_of(config: ConfigBase) -> Iterator[Setting]:
    """Every attribute of `config` and of its categories, in the order of declaration."""
    for name, member in config._members.items():
        if isinstance(member, Group):
            yield from settings_of(getattr(config, name))
        else:
            yield Setting(_metadata(config, name), member, config, name)


def metadata_of(config: ConfigBase) -> Iterator[AttributeMetadata]:
    """The metadata of every attribute and category of `config`, each category before its members."""
    for name, member in config._members.items():
        yield _metadata(config, name)
        if isinstance(member, Group):
            yield from metadata_of(getattr(config, name))


def deprecate_config_attribute(name: str, msg: str) -> Callable[[_Config], _Config]:
    """A class decorator that deprecates the attribute or category `name` of a `ConfigBase`.

    Members of a deprecated category are deprecated with it, unless they have messages of their own.

    Raises:
        ValueError: when it is applied, if the class has no member `name`.
    """
    return deprecate_config_attributes({name: msg})


def deprecate_config_attributes(to_deprecate: Mapping[str, str]) -> Callable[[_Config], _Config]:
    """As `deprecate_config_attribute`, for several attributes: a mapping from names to messages."""

    def decorate(cls: _Config) -> _Config:
        for name in to_deprecate:
            if name not in cls.declared_names():
                raise ValueError(f"{cls.__name__} has no attribute to deprecate called '{name}'.")
        cls._deprecations = {**cls._deprecations, **to_deprecate}
        return cls

    return decorate


def documented(cls: _Config) -> _Config:
    """A class decorator that appends the documentation of every attribute to the class's own."""
    blocks = "\n".join(item.to_rst() for item in metadata_of(cls()))
    cls.__doc__ = f"{cls.__doc__}\n{blocks}"
    return cls


def _deprecation(config: ConfigBase, name: str) -> str | None:
    return config._deprecations.get(name, config._deprecated_msg)


def _metadata(config: ConfigBase, name: str) -> AttributeMetadata:
    if name not in config._members:
        raise ConfigAttributeError(_unknown(config, name))
    return config._members[name].describe(config._prefix + name, _deprecation(config, name))


def _member_group(config: ConfigBase, name: str) -> ConfigBase:
    if not isinstance(config._members.get(name), Group):
        raise ConfigAttributeError(_unknown(config, name))
    group: ConfigBase = getattr(config, name)
    return group


def _unknown(config: ConfigBase, name: str) -> str:
    """The error for an unknown attribute, with a similar name or one from a category below."""
    if name.startswith("_"):
        return _invalid(name, [])
    similar = [config._prefix + near for near in difflib.get_close_matches(name, config._members)]
    elsewhere = [item.name for item in metadata_of(config) if item.name.endswith(f".{name}")]
    return _invalid(name, similar or elsewhere)


def _invalid(name: str, suggestions: list[str]) -> str:
    hint = f" Did you mean '{suggestions[0]}'?" if suggestions else ""
    return f"'{name}' is not a valid attribute of this config.{hint}"


def _log_missing(names: list[str]) -> None:
    if names:
        shown = ", ".join(names[:_MISSING_SHOWN]) + (", ..." if len(names) > _MISSING_SHOWN else "")
        LOGGER.warning("ipu_tf: %d attributes were given no value and keep theirs: %s", len(names), shown)
