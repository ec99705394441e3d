"""The configuration object: access, suggestions, categories, copies and dicts."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable
from enum import Enum

import pytest

from ipu_tf.config import (
    DeviceConnectionType,
    ExecutionProfileType,
    IPUConfig,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
)

pytestmark = pytest.mark.filterwarnings("error")

CATEGORIES = [
    "convolutions",
    "device_connection",
    "slices",
    "experimental",
    "experimental.multi_replica_distribution",
    "floating_point_behaviour",
    "io_tiles",
    "ipu_model",
    "matmuls",
    "norms",
    "norms.experimental",
    "optimizations",
    "optimizations.math",
    "pooling",
    "scheduling",
]


@pytest.mark.parametrize("name", CATEGORIES)
def test_categories_cannot_be_assigned_to(name: str) -> None:
    cfg = IPUConfig()
    owner: object = cfg
    *parents, last = name.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    before = getattr(owner, last)
    for value in (3, None, before):
        with pytest.raises(TypeError) as caught:
            setattr(owner, last, value)
        assert str(caught.value) == f"{name} is a category and cannot be assigned to."
    assert getattr(owner, last) is before


@pytest.mark.parametrize("name", CATEGORIES)
def test_categories_have_metadata_without_type(name: str) -> None:
    metadata = IPUConfig().get_attribute_metadata(name)
    assert (metadata.name, metadata.type, metadata.actual_type) == (name, None, None)
    assert (metadata.default, metadata.effect, metadata.deprecated) == (None, None, False)
    with pytest.raises(TypeError, match=f"{name} is a category and cannot be assigned to."):
        metadata.check_type(1)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("auto_select_ipu", "auto_select_ipus"),
        ("optimisations", "optimizations"),
        ("esr", "floating_point_behaviour.esr"),
        ("process_count", "experimental.multi_replica_distribution.process_count"),
    ],
)
def test_unknown_attributes_get_a_suggestion(wrong: str, right: str) -> None:
    cfg = IPUConfig()
    text = f"'{wrong}' is not a valid attribute of this config. Did you mean '{right}'?"
    with pytest.raises(ValueError) as got:
        getattr(cfg, wrong)
    with pytest.raises(ValueError) as put:
        setattr(cfg, wrong, 1)
    assert str(got.value) == str(put.value) == text
    assert not hasattr(cfg, wrong)


def test_suggestions_in_a_category_have_full_names() -> None:
    with pytest.raises(ValueError, match="Did you mean 'io_tiles.num_io_tiles'?"):
        _ = IPUConfig().io_tiles.num_io_tile  # type: ignore[attr-defined]


def test_nothing_is_suggested_where_nothing_is_similar() -> None:
    with pytest.raises(ValueError) as caught:
        _ = IPUConfig().zzzzzz  # type: ignore[attr-defined]
    assert str(caught.value) == "'zzzzzz' is not a valid attribute of this config."


@pytest.mark.parametrize("name", ["_prefix", "_deprecated_msg", "_members", "__dict__", "_new"])
def test_private_names_are_no_attributes(name: str) -> None:
    cfg = IPUConfig()
    with pytest.raises(ValueError, match=f"'{name}' is not a valid attribute of this config."):
        setattr(cfg, name, {})
    with pytest.raises(ValueError, match=f"Could not get attribute metadata for '{name}': '{name}' is not"):
        cfg.get_attribute_metadata(name)


def test_attributes_cannot_be_deleted() -> None:
    cfg = IPUConfig()
    with pytest.raises(AttributeError, match="'auto_select_ipus' cannot be deleted. Set it to its default"):
        del cfg.auto_select_ipus
    assert cfg.auto_select_ipus == []


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("io_tiles.tiles", "'tiles' is not a valid attribute of this config."),
        ("io_tile.x", "'io_tile' is not a valid attribute of this config. Did you mean 'io_tiles'?"),
        ("auto_select_ipus.x", "'auto_select_ipus' is not a valid attribute of this config."),
        ("", "'' is not a valid attribute of this config."),
    ],
)
def test_unknown_metadata(asked: str, reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        IPUConfig().get_attribute_metadata(asked)
    assert str(caught.value).startswith(f"Could not get attribute metadata for '{asked}': {reason}")


def test_metadata_names_are_relative_to_the_category() -> None:
    cfg = IPUConfig()
    assert cfg.norms.get_attribute_metadata("use_stable_statistics").name == "norms.use_stable_statistics"
    with pytest.raises(ValueError, match="metadata for 'norms.use_stable_statistics': 'norms' is"):
        cfg.norms.get_attribute_metadata("norms.use_stable_statistics")


def test_metadata_checks_types() -> None:
    metadata = IPUConfig().get_attribute_metadata("io_tiles.num_io_tiles")
    assert metadata.check_type(3)
    with pytest.raises(TypeError) as caught:
        metadata.check_type(True)
    assert str(caught.value) == "Trying to set io_tiles.num_io_tiles to True, but it must be of type int"


def test_options_can_be_changed_in_place() -> None:
    cfg = IPUConfig()
    cfg.matmuls.poplar_options["partialsType"] = "half"
    assert cfg.to_dict()["matmuls.poplar_options"] == {"partialsType": "half"}
    assert cfg.convolutions.poplar_options == {} == IPUConfig().matmuls.poplar_options


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda cfg: pickle.loads(pickle.dumps(cfg))])
def test_copies_are_independent(duplicate: Callable[[IPUConfig], IPUConfig]) -> None:
    cfg = IPUConfig()
    cfg.auto_select_ipus = [1, 2]
    cfg.slices.poplar_options = {"a": "b"}
    twin = duplicate(cfg)
    assert type(twin) is IPUConfig
    assert twin.to_dict() == cfg.to_dict()
    assert isinstance(twin.auto_select_ipus, list)
    twin.auto_select_ipus.append(3)
    twin.slices.poplar_options["c"] = "d"
    twin.io_tiles.num_io_tiles = 4
    assert cfg.auto_select_ipus == [1, 2]
    assert cfg.slices.poplar_options == {"a": "b"}
    assert cfg.io_tiles.num_io_tiles == 0
    assert twin.get_attribute_metadata("io_tiles.num_io_tiles").name == "io_tiles.num_io_tiles"


def test_dicts_share_nothing_with_the_configuration() -> None:
    cfg = IPUConfig()
    cfg.auto_select_ipus = [1]
    saved = cfg.to_dict()
    saved["auto_select_ipus"].append(2)
    assert cfg.auto_select_ipus == [1]
    cfg.from_dict(saved)
    saved["auto_select_ipus"].append(3)
    assert cfg.auto_select_ipus == [1, 2]


def test_from_dict_keeps_what_it_is_not_given(caplog: pytest.LogCaptureFixture) -> None:
    cfg = IPUConfig()
    cfg.io_tiles.num_io_tiles = 5
    with caplog.at_level(logging.WARNING, "ipu_tf"):
        cfg.from_dict({"auto_select_ipus": 4})
    assert (cfg.auto_select_ipus, cfg.io_tiles.num_io_tiles) == (4, 5)
    missing = len(cfg.to_dict()) - 1
    assert f"{missing} attributes were given no value and keep theirs: allow_recompute, " in caplog.text
    assert len(caplog.records) == 1


def test_a_complete_dict_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    IPUConfig().from_dict(IPUConfig().to_dict())
    assert not caplog.records


def test_from_dict_refuses_unknown_names_and_changes_nothing() -> None:
    cfg = IPUConfig()
    with pytest.raises(ValueError) as caught:
        cfg.from_dict({"auto_select_ipus": 4, "io_tiles.num_io_tle": 3})
    assert str(caught.value) == (
        "'io_tiles.num_io_tle' is not a valid attribute of this config. Did you mean 'io_tiles.num_io_tiles'?"
    )
    assert cfg.auto_select_ipus == []


@pytest.mark.parametrize("value", [9, -1])
def test_from_dict_refuses_ints_that_are_no_member(value: int) -> None:
    with pytest.raises(ValueError) as caught:
        IPUConfig().from_dict({"selection_order": value})
    assert str(caught.value) == (
        f"selection_order must be one of 0 (AUTO), 1 (ZIGZAG), 2 (SNAKE), 3 (HOOF). Received: {value}."
    )


def test_from_dict_takes_no_bool_for_an_enumeration() -> None:
    with pytest.raises(TypeError, match="to True, but it must be of type SelectionOrder"):
        IPUConfig().from_dict({"selection_order": True})


def test_from_dict_takes_members_as_well_as_ints() -> None:
    cfg = IPUConfig()
    cfg.from_dict({"selection_order": SelectionOrder.HOOF, "device_connection.type": 1})
    assert cfg.selection_order is SelectionOrder.HOOF
    assert cfg.device_connection.type is DeviceConnectionType.ON_DEMAND


def test_a_category_saves_and_restores_its_own_part() -> None:
    cfg, other = IPUConfig(), IPUConfig()
    cfg.io_tiles.num_io_tiles = 5
    cfg.allow_recompute = True
    assert set(cfg.io_tiles.to_dict()) == {
        "io_tiles.num_io_tiles",
        "io_tiles.place_ops_on_io_tiles",
        "io_tiles.available_memory_proportion",
    }
    other.io_tiles.from_dict(cfg.to_dict())
    assert (other.io_tiles.num_io_tiles, other.allow_recompute) == (5, False)


def test_repr_is_indented_under_the_class_name() -> None:
    cfg = IPUConfig()
    cfg.serialization_output_folder = "/tmp/x"
    lines = repr(cfg).splitlines()
    assert lines[0] == "IPUConfig:"
    assert [line.removeprefix("  ") for line in lines[1:]] == str(cfg).splitlines()
    assert "  serialization_output_folder = '/tmp/x'" in lines


def test_deprecated_attributes_warn_when_set() -> None:
    cfg = IPUConfig()
    text = "optimizations.enable_fast_math has been deprecated: use 'optimizations.math.fast'"
    with pytest.warns(DeprecationWarning, match=text) as caught:
        cfg.optimizations.enable_fast_math = True
    assert [item.filename for item in caught] == [__file__]
    assert cfg.optimizations.enable_fast_math is True
    assert cfg.optimizations.math.fast is False


def test_deprecated_attributes_warn_when_restored_to_another_value() -> None:
    cfg = IPUConfig()
    saved = cfg.to_dict()
    cfg.from_dict(saved)
    with pytest.warns(DeprecationWarning, match="optimizations.enable_fast_math"):
        cfg.from_dict(saved | {"optimizations.enable_fast_math": True})


@pytest.mark.parametrize(
    ("enumeration", "values"),
    [
        (SelectionOrder, {"AUTO": 0, "ZIGZAG": 1, "SNAKE": 2, "HOOF": 3}),
        (
            ExecutionProfileType,
            {"NO_PROFILE": 0, "DEVICE_PROFILE": 1, "IPU_PROFILE": 2, "TILE_PROFILE": 3},
        ),
        (DeviceConnectionType, {"ALWAYS": 0, "ON_DEMAND": 1, "NEVER": 2, "PRE_COMPILE": 3}),
        (MergeRemoteBuffersBehaviour, {"NO_MERGING": 0, "MERGE": 1, "IF_BENEFICIAL": 2}),
        (
            SchedulingAlgorithm,
            {"CHOOSE_BEST": 0, "CLUSTERING": 1, "POST_ORDER": 2, "LOOK_AHEAD": 3, "SHORTEST_PATH": 4},
        ),
        (StochasticRoundingBehaviour, {"OFF": 0, "ON": 1, "REPLICA_IDENTICAL_ONLY": 2}),
    ],
)
def test_enumerations(enumeration: type[Enum], values: dict[str, int]) -> None:
    assert {member.name: member.value for member in enumeration} == values


@pytest.mark.parametrize("value", [True, False])
def test_stochastic_rounding_from_bool(value: bool) -> None:
    cfg = IPUConfig()
    cfg.floating_point_behaviour.esr = StochasticRoundingBehaviour.from_bool(value)
    assert cfg.floating_point_behaviour.esr.name == ("ON" if value else "OFF")
    with pytest.raises(TypeError, match=f"Trying to set floating_point_behaviour.esr to {value}"):
        cfg.floating_point_behaviour.esr = value  # type: ignore[assignment]
