"""Field names of Graphcore's configuration record (`IpuOptions`), and their values for an `IPUConfig`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from ipu_tf._config.base import settings_of
from ipu_tf._config.enums import StochasticRoundingBehaviour
from ipu_tf._config.validation import as_numbers

if TYPE_CHECKING:
    from ipu_tf._config.schema import ConfigRoot

_CREATED_BY_IPU_CONFIG = 1
# Fields of the record that are not called like the attribute; "not" marks those with the opposite meaning.
_RENAMED = {
    "allow_recompute": "speed_size_config.allow_recompute",
    "serialization_output_folder": "serialization_folder",
    "compilation_poplar_options": "compilation_options",
    "gcl_poplar_options": "gcl_options",
    "convolutions.poplar_options": "convolution_options",
    "matmuls.poplar_options": "matmul_options",
    "matmuls.clear_pass_type": "clear_matmul_pass_type",
    "slices.poplar_options": "slice_options",
    "pooling.poplar_options": "pooling_options",
    "device_connection.type": "device_connection_type",
    "device_connection.version": "ipu_version",
    "device_connection.enable_remote_buffers": "enable_remote_buffers_without_device",
    "experimental.always_rearrange_copies_on_the_host": ("speed_size_config.always_rearrange_copies_on_the_host"),
    "experimental.enable_remote_buffer_embedding": "enable_experimental_remote_buffer_embedding",
    "experimental.enable_prng_stability": "enable_experimental_prng_stability",
    "experimental.multi_replica_distribution.process_index": "multi_replica_process_index",
    "experimental.multi_replica_distribution.process_count": "multi_replica_process_count",
    "io_tiles.available_memory_proportion": "io_tile_available_memory_proportion",
    "ipu_model.compile_ipu_code": "ipu_model_config.compile_ipu_code",
    "ipu_model.tiles_per_ipu": "ipu_model_config.tiles_per_ipu",
    "ipu_model.version": "ipu_model_config.ipu_model_version",
    "norms.use_stable_statistics": "use_stable_norm_statistics",
    "norms.experimental.distributed_batch_norm_replica_group_size": (
        "experimental_distributed_batch_norm_replica_group_size"
    ),
    "optimizations.math.fast": "algebraic_simplifier_config.enable_fast_math",
    "optimizations.math.dot_strength": "algebraic_simplifier_config.enable_dot_strength",
    "optimizations.combine_embedding_lookups": "enable_multi_slice_combiner",
    "optimizations.combine_matmuls": "enable_matmul_combiner",
    "optimizations.enable_graph_outlining": "not speed_size_config.disable_graph_outlining",
    "optimizations.merge_infeed_io_copies": "speed_size_config.merge_infeed_io_copies",
    "optimizations.maximum_cross_replica_sum_buffer_size": "max_cross_replica_sum_buffer_size",
    "optimizations.maximum_reduce_scatter_buffer_size": "max_reduce_scatter_buffer_size",
    "optimizations.maximum_inter_ipu_copies_buffer_size": "max_inter_ipu_copies_buffer_size",
    "optimizations.maximum_send_recv_cluster_size": "max_send_recv_cluster_size",
    "optimizations.maximum_reduce_many_buffer_size": "max_reduce_many_buffer_size",
    "optimizations.maximum_all_gather_buffer_size": "max_all_gather_buffer_size",
    "optimizations.merge_remote_buffers": "remote_buffer_merging_mode",
    "optimizations.enable_gather_simplifier": "not disable_gather_simplifier",
    "scheduling.algorithm": "speed_size_config.scheduler_selection",
    "scheduling.maximum_scheduler_lookahead_depth": "max_scheduler_lookahead_depth",
    "scheduling.maximum_scheduler_search_space_size": "max_scheduler_search_space_size",
}
_KEEPS_CATEGORY = "floating_point_behaviour."
_ELSEWHERE = ("auto_select_ipus", "select_ipus", "floating_point_behaviour.set_all")


@dataclasses.dataclass(frozen=True)
class DeviceConfig:
    """IPUs of one device: `auto_count` IPUs, or those of the id `cfg_index`."""

    auto_count: int = 0
    cfg_index: int = 0


@dataclasses.dataclass(frozen=True)
class PoplarOption:
    """One option of a Poplar library and its value."""

    option: str
    value: str


class OptionFields:
    """Named values that cannot be changed; two are equal if their values are."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        """Stores a copy of `fields`."""
        self.__dict__["_fields"] = dict(fields)

    def __getattr__(self, name: str) -> Any:
        """The value of the field `name`."""
        fields: Mapping[str, Any] = self.__dict__.get("_fields", {})
        if name not in fields:
            raise AttributeError(f"{type(self).__name__} has no field '{name}'. It has: {', '.join(fields)}.")
        return fields[name]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: the record says what was configured."""
        raise AttributeError(f"{type(self).__name__}.{name} cannot be set. Set the attribute of an IPUConfig instead.")

    def __eq__(self, other: object) -> bool:
        """Returns whether `other` is of the same class and has the same values."""
        if not isinstance(other, OptionFields) or type(self) is not type(other):
            return NotImplemented
        return bool(self.__dict__["_fields"] == other.__dict__["_fields"])

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """The class name and every field."""
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__dict__["_fields"].items())
        return f"{type(self).__name__}({fields})"


def fields_of(config: ConfigRoot) -> dict[str, Any]:
    """The fields of the record of `config`, those with dots in their names grouped."""
    tree: dict[str, Any] = {}
    for item in settings_of(config):
        if item.metadata.name not in _ELSEWHERE:
            opposite, path = _field_path(item.metadata.name)
            value = _field_value(item.value)
            *group, last = path.split(".")
            (tree.setdefault(group[0], {}) if group else tree)[last] = (not value) if opposite else value
    if config.floating_point_behaviour.set_all:
        tree["floating_point_behaviour"].update(
            inv=True, div0=True, oflo=True, nanoo=True, esr=StochasticRoundingBehaviour.ON.value
        )
    tree["device_config"] = _device_configs(config)
    tree["creator_id"] = _CREATED_BY_IPU_CONFIG
    return {name: OptionFields(value) if isinstance(value, dict) else value for name, value in tree.items()}


def _field_path(attribute: str) -> tuple[bool, str]:
    """Returns whether the field negates its attribute, and its name: the attribute's last part, if not renamed."""
    own_name = attribute if attribute.startswith(_KEEPS_CATEGORY) else attribute.rpartition(".")[2]
    path = _RENAMED.get(attribute, own_name)
    return path.startswith("not "), path.removeprefix("not ")


def _field_value(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return tuple(PoplarOption(option, setting) for option, setting in value.items())
    return value


def _device_configs(config: ConfigRoot) -> tuple[DeviceConfig, ...]:
    chosen = tuple(DeviceConfig(cfg_index=index) for index in as_numbers(config.select_ipus))
    return chosen + tuple(DeviceConfig(auto_count=count) for count in as_numbers(config.auto_select_ipus))
