"""The record of a configuration, with Graphcore's field names."""

from __future__ import annotations

import copy
from operator import attrgetter
from typing import Any

import pytest

from ipu_tf._config.ipu_option_fields import DeviceConfig, PoplarOption
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

#: Of libraries whose options are known by name.
ENGINE = (
    {"target.syncMethod": "polling", "prng.seed": "3"},
    (PoplarOption("target.syncMethod", "polling"), PoplarOption("prng.seed", "3")),
    (),
)
COLLECTIVES = ({"method": "broadcast"}, (PoplarOption("method", "broadcast"),), ())
MEMORY = (
    {"availableMemoryProportion": "0.3"},
    (PoplarOption("availableMemoryProportion", "0.3"),),
    (),
)
POOLING = ({"optimizeForSpeed": "true"}, (PoplarOption("optimizeForSpeed", "true"),), ())
#: attribute, field of the record, value to set, the field's value then, the field's value by default
FIELDS: list[tuple[str, str, Any, Any, Any]] = [
    ("allow_recompute", "speed_size_config.allow_recompute", True, True, False),
    ("selection_order", "selection_order", SelectionOrder.SNAKE, 2, 0),
    ("serialization_output_folder", "serialization_folder", "/a", "/a", ""),
    ("compilation_poplar_options", "compilation_options", *ENGINE),
    ("gcl_poplar_options", "gcl_options", *COLLECTIVES),
    ("convolutions.poplar_options", "convolution_options", *MEMORY),
    ("slices.poplar_options", "slice_options", *MEMORY),
    ("matmuls.poplar_options", "matmul_options", *MEMORY),
    ("pooling.poplar_options", "pooling_options", *POOLING),
    ("matmuls.clear_pass_type", "clear_matmul_pass_type", True, True, False),
    ("device_connection.type", "device_connection_type", DeviceConnectionType.ON_DEMAND, 1, 0),
    ("device_connection.version", "ipu_version", "ipu2", "ipu2", ""),
    ("device_connection.enable_remote_buffers", "enable_remote_buffers_without_device", True, True, False),
    (
        "experimental.always_rearrange_copies_on_the_host",
        "speed_size_config.always_rearrange_copies_on_the_host",
        True,
        True,
        False,
    ),
    (
        "experimental.enable_remote_buffer_embedding",
        "enable_experimental_remote_buffer_embedding",
        True,
        True,
        False,
    ),
    ("experimental.enable_prng_stability", "enable_experimental_prng_stability", True, True, False),
    ("experimental.multi_replica_distribution.process_count", "multi_replica_process_count", 2, 2, 0),
    ("experimental.multi_replica_distribution.process_index", "multi_replica_process_index", 1, 1, 0),
    ("floating_point_behaviour.inv", "floating_point_behaviour.inv", True, True, False),
    ("floating_point_behaviour.div0", "floating_point_behaviour.div0", True, True, False),
    ("floating_point_behaviour.oflo", "floating_point_behaviour.oflo", True, True, False),
    ("floating_point_behaviour.nanoo", "floating_point_behaviour.nanoo", True, True, False),
    (
        "floating_point_behaviour.esr",
        "floating_point_behaviour.esr",
        StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY,
        2,
        0,
    ),
    ("io_tiles.num_io_tiles", "num_io_tiles", 10, 10, 0),
    ("io_tiles.available_memory_proportion", "io_tile_available_memory_proportion", 0.1, 0.1, 0.9),
    ("ipu_model.compile_ipu_code", "ipu_model_config.compile_ipu_code", False, False, True),
    ("ipu_model.tiles_per_ipu", "ipu_model_config.tiles_per_ipu", 100, 100, 0),
    ("ipu_model.version", "ipu_model_config.ipu_model_version", "ipu1", "ipu1", "ipu2"),
    ("norms.use_stable_statistics", "use_stable_norm_statistics", True, True, False),
    (
        "norms.experimental.distributed_batch_norm_replica_group_size",
        "experimental_distributed_batch_norm_replica_group_size",
        8,
        8,
        1,
    ),
    ("optimizations.prefetch_data_streams", "prefetch_data_streams", False, False, True),
    ("optimizations.combine_embedding_lookups", "enable_multi_slice_combiner", True, True, False),
    ("optimizations.combine_matmuls", "enable_matmul_combiner", True, True, False),
    ("optimizations.enable_graph_outlining", "speed_size_config.disable_graph_outlining", False, True, False),
    ("optimizations.merge_infeed_io_copies", "speed_size_config.merge_infeed_io_copies", False, False, True),
    (
        "optimizations.maximum_cross_replica_sum_buffer_size",
        "max_cross_replica_sum_buffer_size",
        7,
        7,
        0,
    ),
    ("optimizations.maximum_reduce_scatter_buffer_size", "max_reduce_scatter_buffer_size", 7, 7, 0),
    ("optimizations.maximum_inter_ipu_copies_buffer_size", "max_inter_ipu_copies_buffer_size", 7, 7, 0),
    ("optimizations.maximum_send_recv_cluster_size", "max_send_recv_cluster_size", 7, 7, 0),
    ("optimizations.maximum_reduce_many_buffer_size", "max_reduce_many_buffer_size", 7, 7, 0),
    ("optimizations.maximum_all_gather_buffer_size", "max_all_gather_buffer_size", 7, 7, 0),
    ("optimizations.minimum_remote_tensor_size", "minimum_remote_tensor_size", 64, 64, 128),
    (
        "optimizations.merge_remote_buffers",
        "remote_buffer_merging_mode",
        MergeRemoteBuffersBehaviour.NO_MERGING,
        0,
        2,
    ),
    ("optimizations.enable_gather_simplifier", "disable_gather_simplifier", False, True, False),
    (
        "optimizations.triangular_solve_expander_block_size",
        "triangular_solve_expander_block_size",
        100,
        100,
        0,
    ),
    ("optimizations.cholesky_block_size", "cholesky_block_size", 100, 100, 0),
    ("optimizations.enable_fast_math", "enable_fast_math", True, True, False),
    ("optimizations.math.fast", "algebraic_simplifier_config.enable_fast_math", True, True, False),
    (
        "optimizations.math.dot_strength",
        "algebraic_simplifier_config.enable_dot_strength",
        False,
        False,
        True,
    ),
    (
        "optimizations.enable_dynamic_slice_replacement",
        "enable_dynamic_slice_replacement",
        False,
        False,
        True,
    ),
    (
        "scheduling.algorithm",
        "speed_size_config.scheduler_selection",
        SchedulingAlgorithm.SHORTEST_PATH,
        4,
        0,
    ),
    ("scheduling.maximum_scheduler_lookahead_depth", "max_scheduler_lookahead_depth", 100, 100, 5),
    ("scheduling.maximum_scheduler_search_space_size", "max_scheduler_search_space_size", 100, 100, 64),
    ("graphcore_rules", "graphcore_rules", True, True, False),
]
ELSEWHERE = {
    "auto_select_ipus",
    "select_ipus",
    "floating_point_behaviour.set_all",
    "io_tiles.place_ops_on_io_tiles",
}


def test_every_attribute_is_looked_at() -> None:
    assert {row[0] for row in FIELDS} | ELSEWHERE == set(IPUConfig().to_dict())


@pytest.mark.parametrize(("name", "path", "value", "recorded", "default"), FIELDS)
def test_an_option_changes_its_field_alone(
    name: str, path: str, value: object, recorded: object, default: object
) -> None:
    cfg = IPUConfig()
    before = cfg._create_protobuf()
    assert attrgetter(path)(before) == default
    if name.endswith("process_index"):
        cfg.experimental.multi_replica_distribution.process_count = 3
    assign(cfg, name, value)
    after = cfg._create_protobuf()
    assert attrgetter(path)(after) == recorded
    assert type(attrgetter(path)(after)) is type(recorded)
    assert after != before
    others = [row[1] for row in FIELDS if row[1] != path and not row[1].startswith("multi_replica")]
    assert [attrgetter(other)(after) for other in others] == [attrgetter(other)(before) for other in others]


def test_ops_on_io_tiles() -> None:
    cfg = IPUConfig()
    assert cfg._create_protobuf().place_ops_on_io_tiles is False
    cfg.io_tiles.num_io_tiles = 1
    cfg.io_tiles.place_ops_on_io_tiles = True
    assert cfg._create_protobuf().place_ops_on_io_tiles is True


def test_set_all_switches_every_behaviour_on() -> None:
    cfg = IPUConfig()
    cfg.floating_point_behaviour.set_all = True
    cfg.floating_point_behaviour.esr = StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY
    record = cfg._create_protobuf().floating_point_behaviour
    assert (record.inv, record.div0, record.oflo, record.esr, record.nanoo) == (True, True, True, 1, True)
    assert cfg.floating_point_behaviour.inv is False


@pytest.mark.parametrize(("value", "counts"), [(2, [2]), ([4, 4], [4, 4]), ((2, 3, 4, 5), [2, 3, 4, 5]), ([], [])])
def test_numbers_of_ipus(value: int | list[int], counts: list[int]) -> None:
    cfg = IPUConfig()
    cfg.auto_select_ipus = value
    devices = cfg._create_protobuf().device_config
    assert devices == tuple(DeviceConfig(auto_count=count) for count in counts)


@pytest.mark.parametrize(("value", "ids"), [(0, [0]), ([1, 2], [1, 2]), ((1, 2), [1, 2])])
def test_ids_of_ipus(value: int | list[int], ids: list[int]) -> None:
    cfg = IPUConfig()
    cfg.select_ipus = value
    assert cfg._create_protobuf().device_config == tuple(DeviceConfig(cfg_index=index) for index in ids)


def test_ways_to_write_the_same_are_equal() -> None:
    records = []
    for value in (2, [2], (2,)):
        cfg = IPUConfig()
        cfg.auto_select_ipus = value
        records.append(cfg._create_protobuf())
    assert records[0] == records[1] == records[2]
    assert records[0] != IPUConfig()._create_protobuf()
    assert records[0] != "options"
    assert records[0].speed_size_config != records[0]


def test_the_record_was_made_by_this_class() -> None:
    assert IPUConfig()._create_protobuf().creator_id == 1


def test_the_record_cannot_be_changed() -> None:
    record = IPUConfig()._create_protobuf()
    with pytest.raises(AttributeError, match="IpuOptions.num_io_tiles cannot be set. Set the attribute of an IPU"):
        record.num_io_tiles = 3
    with pytest.raises(AttributeError, match="OptionFields.inv cannot be set"):
        record.floating_point_behaviour.inv = True
    with pytest.raises(TypeError, match="unhashable"):
        hash(record)


def test_unknown_fields() -> None:
    record = IPUConfig()._create_protobuf()
    with pytest.raises(AttributeError, match="OptionFields has no field 'x'. It has: inv, div0, oflo, esr, nano"):
        _ = record.floating_point_behaviour.x


def test_the_record_is_independent_of_the_configuration() -> None:
    cfg = IPUConfig()
    cfg.auto_select_ipus = [1]
    record = cfg._create_protobuf()
    twin = copy.deepcopy(record)
    cfg.auto_select_ipus.append(2)
    record.to_dict()["auto_select_ipus"].append(3)
    assert record.to_dict()["auto_select_ipus"] == [1]
    assert record == twin
    assert repr(record) == repr(twin)
    assert "auto_count=1" in repr(record)
