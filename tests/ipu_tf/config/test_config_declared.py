"""Configuration classes that declare their attributes in `__init__`."""

from __future__ import annotations

import copy
import enum
import typing
from typing import Any

import pytest

from ipu_tf._config.declared import value_type_of
from ipu_tf.config import _ConfigBase, deprecate_config_attribute, deprecate_config_attributes


@deprecate_config_attribute("old", "use 'limit'.")
class Inner(_ConfigBase):
    """A category."""

    def __init__(self) -> None:
        """Upper limit."""
        self.limit: int = 3
        self.colour = Colour.RED
        self.old: typing.Union[int, list] = 1  # noqa: UP007 - the text of the annotation is what matters


class Colour(enum.Enum):
    """An enumeration that is defined after its first use."""

    RED = 1
    BLUE = 2


class Outer(_ConfigBase):
    """A root."""

    def __init__(self) -> None:
        """A name."""
        self.name = "x"
        """The inner part."""
        self.inner = Inner()
        self.pairs: typing.List[typing.Tuple[int, str]] = []  # noqa: UP006
        self._finalize_base_config()

    def _to_protobuf(self, pb: Any) -> None:
        pb["name"] = self.name
        super()._to_protobuf(pb)


def test_attributes_and_categories() -> None:
    config: Any = Outer()
    metadata = config.get_attribute_metadata("inner.limit")
    assert (metadata.name, metadata.type, metadata.default) == ("inner.limit", "int", 3)
    assert metadata.__doc__ == "Upper limit."
    assert config.get_attribute_metadata("inner").__doc__ == "The inner part."
    assert config.get_attribute_metadata("pairs").__doc__ == "No description provided."
    assert config.get_attribute_metadata("pairs").type == "typing.List[typing.Tuple[int, str]]"
    assert config.inner._get_full_name("limit") == "inner.limit"
    config.inner.limit = 4
    assert Outer().inner.limit == 3
    twin = copy.deepcopy(config)
    assert twin.to_dict() == {"name": "x", "inner.limit": 4, "inner.colour": 1, "inner.old": 1, "pairs": []}
    twin.from_dict({"inner.colour": 2})
    assert twin.inner.colour is Colour.BLUE


def test_types_and_names_are_checked() -> None:
    config: Any = Outer()
    with pytest.raises(TypeError, match="Trying to set inner.limit to True, but it must be of type int"):
        config.inner.limit = True
    with pytest.raises(TypeError, match="inner is a category and cannot be assigned to."):
        config.inner = 3
    with pytest.raises(ValueError, match="'limits' is not a valid attribute of this config. Did you mean 'inner.lim"):
        config.inner.limits = 3
    config.pairs = [(1, "a")]
    for wrong in ((1, "a"), [(1, "a", 2)], [(True, "a")]):
        with pytest.raises(TypeError, match="Trying to set pairs to"):
            config.pairs = wrong


def test_deprecations() -> None:
    config: Any = Outer()
    assert config.get_attribute_metadata("inner.old").deprecated_msg == "use 'limit'."
    with pytest.warns(DeprecationWarning, match="inner.old has been deprecated: use 'limit'."):
        config.inner.old = [2]
    with pytest.raises(ValueError, match="Outer has no attribute to deprecate called 'gone'"):
        deprecate_config_attributes({"gone": ""})(Outer)


def test_a_record_is_written_by_every_part() -> None:
    record: dict[str, Any] = {}
    Outer()._to_protobuf(record)
    assert record == {"name": "x"}


@pytest.mark.parametrize(
    ("hint", "accepted", "refused"),
    [
        (int, 1, True),
        (Any, object(), None),
        (typing.Optional[str], None, 1),  # noqa: UP045
        (int | list, [True], (1,)),
        (tuple[float, ...], (1.0, 2.0), (1.0, 2)),
        (dict[str, int], {"a": 1}, {"a": True}),
    ],
)
def test_annotations_are_strict(hint: Any, accepted: object, refused: object) -> None:
    kind = value_type_of(hint)
    assert kind.accepts(accepted)
    assert hint is Any or not kind.accepts(refused)


def test_an_int_or_an_enumeration_cannot_be_told_apart() -> None:
    with pytest.raises(ValueError, match="cannot have a Union of int and Enum"):
        value_type_of(int | Colour)
