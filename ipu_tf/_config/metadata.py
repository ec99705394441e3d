"""`AttributeMetadata`: name, type, default, documentation and deprecation of a configuration attribute."""

from __future__ import annotations

import builtins
import copy
import inspect
import math
import textwrap

from ipu_tf._config.messages import warn_user
from ipu_tf._config.treatment import Effect, Treatment
from ipu_tf._config.types import ValueType

_INDENT = "   "


class AttributeMetadata:
    """The metadata of one attribute or category, from `IPUConfig.get_attribute_metadata`.

    Its `__doc__` is the documentation of the attribute.

    Example:
        >>> from ipu_tf.config import IPUConfig
        >>> IPUConfig().get_attribute_metadata("ipu_model.version").default
        'ipu2'
    """

    def __init__(
        self,
        name: str,
        doc: str,
        *,
        deprecated_msg: str | None = None,
        value_type: ValueType | None = None,
        default: object = None,
        treatments: tuple[Treatment, ...] = (),
    ) -> None:
        """Describe `name`. A category has neither `value_type` nor `default` nor `treatments`."""
        self.__doc__ = inspect.cleandoc(doc)
        self._name = name
        self._depth = name.count(".") + 1
        self._deprecated_msg = deprecated_msg
        self._value_type = value_type
        self._default = default
        self._treatments = treatments

    @property
    def name(self) -> str:
        """The full name, from the root of the configuration: `floating_point_behaviour.esr`."""
        return self._name

    @property
    def deprecated(self) -> bool:
        """Returns whether the attribute or its category is deprecated."""
        return self._deprecated_msg is not None

    @property
    def deprecated_msg(self) -> str | None:
        """Alternative to a deprecated attribute; None for any other."""
        return self._deprecated_msg

    @property
    def type(self) -> str | None:
        """The accepted type as text; None for a category."""
        return None if self._value_type is None else self._value_type.text

    @property
    def actual_type(self) -> builtins.type | None:
        """The accepted Python type; None for a category and where several types are accepted."""
        return None if self._value_type is None else self._value_type.actual

    @property
    def range(self) -> str:
        """The accepted range in words, such as `from 0 to 1`; empty where there is none."""
        return "" if self._value_type is None else self._value_type.range

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest number that is accepted; infinities where there is no bound."""
        kind = self._value_type
        least = None if kind is None else kind.least
        most = None if kind is None else kind.most
        return -math.inf if least is None else least, math.inf if most is None else most

    @property
    def default(self) -> object:
        """A copy of the default value; None for a category."""
        return copy.deepcopy(self._default)

    @property
    def effect(self) -> Effect | None:
        """Effect of a value other than the default in emulation; None for a category."""
        return self._treatments[0].effect if self._treatments else None

    @property
    def effect_reason(self) -> str:
        """Why values have the effect they have, in sentences; empty for a category."""
        return " ".join(treatment.reason for treatment in self._treatments)

    def check_type(self, value: object) -> bool:
        """True if `value` has the attribute's type and is in its range.

        Raises:
            TypeError: if it has another type, or if this is a category.
            ValueError: if it is out of range.
        """
        if self._value_type is None:
            raise TypeError(f"{self.name} is a category and cannot be assigned to.")
        if not self._value_type.accepts(value):
            raise TypeError(f"Trying to set {self.name} to {value}, but it must be of type {self.type}")
        if not self._value_type.holds(value):
            raise ValueError(f"{self.name} must be {self.range}. Received: {value}.")
        return True

    def warn_if_deprecated(self) -> None:
        """Issue a DeprecationWarning if the attribute or its category is deprecated."""
        if self.deprecated:
            warn_user(f"{self.name} has been deprecated: {self.deprecated_msg}", DeprecationWarning)

    def to_rst(self) -> str:
        """The attribute's documentation as a reStructuredText block, indented by its depth."""
        blocks = [f":type: {self.type}\n:value: {_default_text(self._default)}"] if self._value_type else []
        if self.deprecated:
            blocks.append(f".. note::\n\n{_INDENT}DEPRECATED: {self.deprecated_msg}")
        blocks.append(self.__doc__ or "")
        blocks += [f"Range: {self.range}."] if self.range else []
        blocks += [f"Emulation: {item.effect.value}. {item.reason}" for item in self._treatments]
        # The options of a directive follow its first line directly; everything else follows an empty line.
        gap = "\n" if self._value_type else "\n\n"
        body = textwrap.indent("\n\n".join(blocks), _INDENT)
        text = f".. _{self.name}:\n.. py:attribute:: {self.name}{gap}{body}\n"
        return textwrap.indent(text, _INDENT * (self._depth + 1))


def _default_text(default: object) -> str:
    return f'"{default}"' if isinstance(default, str) else str(default)
