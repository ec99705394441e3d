"""Configuration classes in general, with classes made for the tests."""

from __future__ import annotations

import pytest

from ipu_tf._config.base import ConfigBase, deprecate_config_attribute, deprecate_config_attributes, documented
from ipu_tf._config.option import Group, Option
from ipu_tf._config.treatment import COMPILER, MEMORY, Effect, modelled, no_effect, warns

pytestmark = pytest.mark.filterwarnings("error")


class Inner(ConfigBase):
    """The innermost category."""

    deep = Option(False, "A deep attribute.", COMPILER)


@deprecate_config_attributes({"old": "old has a message of its own."})
class Middle(ConfigBase):
    """A category that its parent deprecates."""

    count = Option(1, "A count.", COMPILER)
    old = Option(2, "An old count.", COMPILER)
    inner = Group(Inner, "An inner category.")


@documented
@deprecate_config_attribute("middle", "The middle goes.")
class Root(ConfigBase):
    """A root."""

    text = Option("x", "Some text.\n\n    * kept indentation", modelled("It is shown."))
    middle = Group(Middle, "A middle category.")


class Derived(Root):
    """A root with one attribute more."""

    more = Option(
        0,
        "More.",
        warns("Less."),
        exceptions=[(lambda value: value < 0, no_effect("Negative.")), (lambda value: value == 9, MEMORY)],
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("middle", "The middle goes."),
        ("middle.count", "The middle goes."),
        ("middle.old", "old has a message of its own."),
        ("middle.inner", "The middle goes."),
        ("middle.inner.deep", "The middle goes."),
        ("text", None),
    ],
)
def test_deprecation_passes_on_to_members(name: str, message: str | None) -> None:
    metadata = Root().get_attribute_metadata(name)
    assert (metadata.deprecated, metadata.deprecated_msg) == (message is not None, message)


def test_setting_a_member_of_a_deprecated_category_warns() -> None:
    root = Root()
    with pytest.warns(DeprecationWarning) as caught:
        root.middle.inner.deep = True
        root.middle.old = 3
    assert [str(item.message) for item in caught] == [
        "middle.inner.deep has been deprecated: The middle goes.",
        "middle.old has been deprecated: old has a message of its own.",
    ]
    root.text = "y"


def test_a_category_class_elsewhere_is_not_deprecated() -> None:
    assert not Middle().get_attribute_metadata("count").deprecated
    assert not Inner().get_attribute_metadata("deep").deprecated


def test_deprecating_what_does_not_exist_fails() -> None:
    with pytest.raises(ValueError, match="Root has no attribute to deprecate called 'txt'."):
        deprecate_config_attribute("txt", "gone")(Root)


def test_subclasses_inherit_attributes_and_deprecations() -> None:
    assert list(Derived().to_dict()) == ["text", "middle.count", "middle.old", "middle.inner.deep", "more"]
    assert Derived().get_attribute_metadata("middle.count").deprecated
    assert "more" not in Root().to_dict()


def test_deprecating_in_a_subclass_leaves_the_parent_alone() -> None:
    class Child(Root):
        """Deprecates its parent's attribute for itself."""

    deprecate_config_attribute("text", "gone")(Child)
    assert Child().get_attribute_metadata("text").deprecated
    assert not Root().get_attribute_metadata("text").deprecated


@pytest.mark.parametrize(
    ("value", "reason"), [(0, None), (1, "Less."), (-1, "Negative."), (9, MEMORY.reason), (8, "Less.")]
)
def test_the_treatment_depends_on_the_value(value: int, reason: str | None) -> None:
    treatment = Derived.more.treatment_of(value)
    assert (treatment.reason if treatment else None) == reason


def test_metadata_tells_the_effect() -> None:
    assert Derived().get_attribute_metadata("more").effect is Effect.WARNS
    assert Derived().get_attribute_metadata("text").effect is Effect.MODELLED


def test_the_class_gives_the_declaration() -> None:
    assert isinstance(Root.text, Option)
    assert isinstance(Root.middle, Group)
    assert Root.text.__doc__ == "Some text.\n\n    * kept indentation"


def test_configurations_do_not_affect_each_other() -> None:
    one, two = Root(), Root()
    one.text = "changed"
    assert (one.text, two.text) == ("changed", "x")


def test_documentation_lists_everything_once() -> None:
    doc = Root.__doc__ or ""
    assert doc.startswith("A root.")
    assert (
        "      .. _text:\n"
        "      .. py:attribute:: text\n"
        "         :type: str\n"
        '         :value: "x"\n'
        "\n"
        "         Some text.\n"
        "\n"
        "         * kept indentation\n"
        "\n"
        "         Emulation: modelled. It is shown.\n"
    ) in doc
    assert (
        "      .. _middle:\n"
        "      .. py:attribute:: middle\n"
        "\n"
        "         .. note::\n"
        "\n"
        "            DEPRECATED: The middle goes.\n"
        "\n"
        "         A middle category.\n"
    ) in doc
    assert (
        "            .. _middle.inner.deep:\n"
        "            .. py:attribute:: middle.inner.deep\n"
        "               :type: bool\n"
        "               :value: False\n"
        "\n"
        "               .. note::\n"
        "\n"
        "                  DEPRECATED: The middle goes.\n"
        "\n"
        "               A deep attribute.\n"
    ) in doc
    for name in ("text", "middle", "middle.count", "middle.old", "middle.inner", "middle.inner.deep"):
        assert doc.count(f".. py:attribute:: {name}\n") == doc.count(f".. _{name}:\n") == 1


def test_making_configurations_leaves_the_documentation_alone() -> None:
    before = Root.__doc__
    Root()
    assert Root.__doc__ == before
