"""Properties that every configuration attribute has, against the table of the interface contract."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_tf.config import (
    DeviceConnectionType,
    IPUConfig,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
)
from tests.helpers.dotted_attributes import assign

pytestmark = pytest.mark.filterwarnings("error", "ignore:.*enable_fast_math:DeprecationWarning")

UNION = "typing.Union[int, typing.List[int], typing.Tuple[int, ...]]"
CONTRACT: dict[str, tuple[str, object]] = {
    "allow_recompute": ("bool", False),
    "selection_order": ("SelectionOrder", SelectionOrder.AUTO),
    "serialization_output_folder": ("str", ""),
    "compilation_poplar_options": ("dict", {}),
    "gcl_poplar_options": ("dict", {}),
    "auto_select_ipus": (UNION, []),
    "select_ipus": (UNION, []),
    "convolutions.poplar_options": ("dict", {}),
    "device_connection.type": ("DeviceConnectionType", DeviceConnectionType.ALWAYS),
    "device_connection.version": ("str", ""),
    "device_connection.enable_remote_buffers": ("bool", False),
    "slices.poplar_options": ("dict", {}),
    "experimental.always_rearrange_copies_on_the_host": ("bool", False),
    "experimental.enable_remote_buffer_embedding": ("bool", False),
    "experimental.enable_prng_stability": ("bool", False),
    "experimental.multi_replica_distribution.process_index": ("int", 0),
    "experimental.multi_replica_distribution.process_count": ("int", 0),
    "floating_point_behaviour.inv": ("bool", False),
    "floating_point_behaviour.div0": ("bool", False),
    "floating_point_behaviour.oflo": ("bool", False),
    "floating_point_behaviour.esr": ("StochasticRoundingBehaviour", StochasticRoundingBehaviour.OFF),
    "floating_point_behaviour.nanoo": ("bool", False),
    "floating_point_behaviour.set_all": ("bool", False),
    "io_tiles.num_io_tiles": ("int", 0),
    "io_tiles.place_ops_on_io_tiles": ("bool", False),
    "io_tiles.available_memory_proportion": ("float", 0.9),
    "ipu_model.compile_ipu_code": ("bool", True),
    "ipu_model.tiles_per_ipu": ("int", 0),
    "ipu_model.version": ("str", "ipu2"),
    "matmuls.clear_pass_type": ("bool", False),
    "matmuls.poplar_options": ("dict", {}),
    "norms.use_stable_statistics": ("bool", False),
    "norms.experimental.distributed_batch_norm_replica_group_size": ("int", 1),
    "optimizations.math.fast": ("bool", False),
    "optimizations.math.dot_strength": ("bool", True),
    "optimizations.prefetch_data_streams": ("bool", True),
    "optimizations.combine_embedding_lookups": ("bool", False),
    "optimizations.combine_matmuls": ("bool", False),
    "optimizations.enable_graph_outlining": ("bool", True),
    "optimizations.merge_infeed_io_copies": ("bool", True),
    "optimizations.maximum_cross_replica_sum_buffer_size": ("int", 0),
    "optimizations.maximum_reduce_scatter_buffer_size": ("int", 0),
    "optimizations.maximum_inter_ipu_copies_buffer_size": ("int", 0),
    "optimizations.maximum_send_recv_cluster_size": ("int", 0),
    "optimizations.maximum_reduce_many_buffer_size": ("int", 0),
    "optimizations.maximum_all_gather_buffer_size": ("int", 0),
    "optimizations.minimum_remote_tensor_size": ("int", 128),
    "optimizations.merge_remote_buffers": (
        "MergeRemoteBuffersBehaviour",
        MergeRemoteBuffersBehaviour.IF_BENEFICIAL,
    ),
    "optimizations.enable_gather_simplifier": ("bool", True),
    "optimizations.triangular_solve_expander_block_size": ("int", 0),
    "optimizations.cholesky_block_size": ("int", 0),
    "optimizations.enable_fast_math": ("bool", False),
    "optimizations.enable_dynamic_slice_replacement": ("bool", True),
    "pooling.poplar_options": ("dict", {}),
    "scheduling.algorithm": ("SchedulingAlgorithm", SchedulingAlgorithm.CHOOSE_BEST),
    "scheduling.maximum_scheduler_lookahead_depth": ("int", 5),
    "scheduling.maximum_scheduler_search_space_size": ("int", 64),
    # Of this project's own:
    "graphcore_rules": ("bool", False),
}
VALUES: dict[str, Callable[[object], st.SearchStrategy[Any]]] = {
    "bool": lambda _: st.booleans(),
    "int": lambda _: st.integers(),
    "float": lambda _: st.floats(allow_nan=False),
    "str": lambda _: st.text(),
    "dict": lambda _: st.dictionaries(st.text(), st.text(), max_size=3),
    UNION: lambda _: st.integers() | st.lists(st.integers(), max_size=4),
}
EVERY_KIND = [True, 1, 1.5, "text", {"a": "b"}, [1], (1,), None, *SelectionOrder, *DeviceConnectionType]
names = pytest.mark.parametrize("name", CONTRACT)


def values_of(name: str) -> st.SearchStrategy[Any]:
    """Values that the attribute accepts and JSON keeps."""
    kind, default = CONTRACT[name]
    if isinstance(default, Enum):
        return st.sampled_from(type(default))
    least, most = IPUConfig().get_attribute_metadata(name).bounds
    return VALUES[kind](default).filter(lambda value: not isinstance(value, int | float) or least <= value <= most)


def is_accepted(name: str, value: object) -> bool:
    """Whether the contract lets the attribute hold `value`: the type itself, never a subclass of it."""
    kind, default = CONTRACT[name]
    if kind == UNION:
        items = value if type(value) in (list, tuple) else [value]
        return all(type(item) is int for item in items)  # type: ignore[attr-defined]
    return type(value) is type(default)


def test_the_attributes_are_those_of_the_contract() -> None:
    assert list(IPUConfig().to_dict()) == list(CONTRACT)


@names
def test_metadata_is_that_of_the_contract(name: str) -> None:
    metadata = IPUConfig().get_attribute_metadata(name)
    kind, default = CONTRACT[name]
    assert (metadata.name, metadata.type, metadata.default) == (name, kind, default)
    assert type(metadata.default) is type(default)
    assert metadata.actual_type is (None if kind == UNION else type(default))
    assert metadata.deprecated == (name == "optimizations.enable_fast_math")


@names
def test_a_new_configuration_holds_the_default(name: str) -> None:
    assert attrgetter(name)(IPUConfig()) == CONTRACT[name][1]


@names
def test_defaults_are_not_shared(name: str) -> None:
    value = attrgetter(name)(IPUConfig())
    if isinstance(value, list):
        value.append(7)
    elif isinstance(value, dict):
        value["spoilt"] = "yes"
    metadata_default = IPUConfig().get_attribute_metadata(name).default
    assert attrgetter(name)(IPUConfig()) == metadata_default == CONTRACT[name][1]


@given(st.data())
def test_assignment_keeps_the_value(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(list(CONTRACT)))
    value = data.draw(values_of(name))
    cfg = IPUConfig()
    assign(cfg, name, value)
    assert attrgetter(name)(cfg) is value or attrgetter(name)(cfg) == value
    others = {key: item for key, item in cfg.to_dict().items() if key != name}
    assert others == {key: item for key, item in IPUConfig().to_dict().items() if key != name}


@names
def test_types_are_strict(name: str) -> None:
    for value in [0.5 if item == 1.5 else item for item in EVERY_KIND]:  # 0.5 is in every range
        cfg = IPUConfig()
        before = attrgetter(name)(cfg)
        if is_accepted(name, value):
            assign(cfg, name, value)
            assert attrgetter(name)(cfg) == value
            continue
        with pytest.raises(TypeError) as caught:
            assign(cfg, name, value)
        kind = CONTRACT[name][0]
        assert str(caught.value) == f"Trying to set {name} to {value}, but it must be of type {kind}"
        assert attrgetter(name)(cfg) == before


@pytest.mark.parametrize("name", [name for name, (kind, _) in CONTRACT.items() if kind == UNION])
@pytest.mark.parametrize("value", [True, [True], [1, "2"], (1, 2.0), [[1]], [None], {1}, "1"])
def test_numbers_of_ipus_are_strict_in_depth(name: str, value: object) -> None:
    with pytest.raises(TypeError, match="but it must be of type typing.Union"):
        assign(IPUConfig(), name, value)


@given(st.data())
def test_json_gives_every_value_back(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(list(CONTRACT)))
    cfg, restored = IPUConfig(), IPUConfig()
    assign(cfg, name, data.draw(values_of(name)))
    restored.from_json(cfg.to_json())
    assert restored.to_dict() == cfg.to_dict()
    assert attrgetter(name)(restored) == attrgetter(name)(cfg)
    assert type(attrgetter(name)(restored)) is type(attrgetter(name)(cfg))


_SEVERAL = st.lists(st.sampled_from(sorted(CONTRACT)), unique=True, max_size=10)


@given(st.data())
def test_json_gives_whole_configurations_back(data: st.DataObject) -> None:
    cfg, restored, other = IPUConfig(), IPUConfig(), IPUConfig()
    for config in (cfg, other):
        for name in data.draw(_SEVERAL):
            assign(config, name, data.draw(values_of(name)))
    restored.from_json(cfg.to_json())
    assert restored.to_json() == cfg.to_json()
    other.from_dict(cfg.to_dict())
    assert str(other) == str(cfg)


@names
def test_enumerations_are_saved_as_ints(name: str) -> None:
    default = CONTRACT[name][1]
    saved = json.loads(IPUConfig().to_json())[name]
    assert saved == (default.value if isinstance(default, Enum) else default)


@names
def test_from_dict_checks_types(name: str) -> None:
    cfg = IPUConfig()
    with pytest.raises(TypeError, match=f"Trying to set {name} to None"):
        cfg.from_dict({"allow_recompute": True, name: None})
    assert cfg.to_dict() == IPUConfig().to_dict()


@names
def test_str_shows_the_value(name: str) -> None:
    value = attrgetter(name)(IPUConfig())
    shown = str(value) if isinstance(value, Enum) else repr(value)
    assert f"{name} = {shown}" in str(IPUConfig()).splitlines()
    assert f"  {name} = {shown}" in repr(IPUConfig()).splitlines()
