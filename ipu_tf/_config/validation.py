"""Checks an `IPUConfig` as a whole, across attributes; single attributes are checked when they are assigned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipu_tf._config.base import settings_of
from ipu_tf._config.enums import DeviceConnectionType
from ipu_tf._config.flags import use_ipu_model
from ipu_tf._config.library_options import warn_of_unknown

if TYPE_CHECKING:
    from ipu_tf._config.schema import ConfigRoot


def as_numbers(value: int | list[int] | tuple[int, ...]) -> tuple[int, ...]:
    """The value of `auto_select_ipus` or `select_ipus` as a tuple: one number becomes a tuple of one."""
    return (value,) if isinstance(value, int) else tuple(value)


def validate(config: ConfigRoot) -> None:
    """Check everything that can be checked without looking at the machine.

    Raises:
        TypeError: if a list or dict was changed in place to hold values of the wrong type.
        ValueError: if attributes contradict each other or one is out of range.
    """
    for rule in _RULES:
        rule(config)


def _types(config: ConfigRoot) -> None:
    for item in settings_of(config):
        item.metadata.check_type(item.value)
        if item.metadata.actual_type is dict:
            _option_strings(item.metadata.name, item.value)
            warn_of_unknown(item.metadata.name, item.value)


def _option_strings(name: str, options: dict[object, object]) -> None:
    for key, value in options.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise TypeError(
                f"{name} must map option names to strings, for example {{'availableMemoryProportion': "
                f"'0.3'}}. Received: {key!r}: {value!r}."
            )


def _selection(config: ConfigRoot) -> None:
    ids = as_numbers(config.select_ipus)
    if ids and as_numbers(config.auto_select_ipus):
        raise ValueError("Only one of `auto_select_ipus` and `select_ipus` can be set.")
    if len(set(ids)) != len(ids):
        raise ValueError("All MultiIPU indices in `select_ipus` must be unique.")
    if ids and use_ipu_model():
        raise ValueError(
            "When using the IPUModel, the devices to attach to can only be specified with `auto_select_ipus`."
        )


def _batch_norm_groups(config: ConfigRoot) -> None:
    size = config.norms.experimental.distributed_batch_norm_replica_group_size
    name = "norms.experimental.distributed_batch_norm_replica_group_size"
    if config.io_tiles.num_io_tiles > 0 and size > 1:
        raise ValueError(f"{name} is not supported with I/O tiles.")
    if size < 1:
        raise ValueError(f"{name} must be at least 1.")


def _connection(config: ConfigRoot) -> None:
    connection = config.device_connection
    without_device = (DeviceConnectionType.NEVER, DeviceConnectionType.PRE_COMPILE)
    if connection.type in without_device and not connection.version:
        raise ValueError(
            "device_connection.version must be set when device_connection.type is "
            "DeviceConnectionType.NEVER or DeviceConnectionType.PRE_COMPILE"
        )


def _distribution(config: ConfigRoot) -> None:
    distribution = config.experimental.multi_replica_distribution
    name = "experimental.multi_replica_distribution"
    if use_ipu_model() and distribution.process_count > 0:
        raise ValueError("Multi-replica distribution is not supported on the IPU model.")
    if distribution.process_count and not 0 <= distribution.process_index < distribution.process_count:
        raise ValueError(f"{name}.process_index must be in the range [0, {name}.process_count).")


def _io_tiles(config: ConfigRoot) -> None:
    if config.io_tiles.place_ops_on_io_tiles and config.io_tiles.num_io_tiles == 0:
        raise ValueError("Cannot place ops on I/O tiles when io_tiles.num_io_tiles == 0")


def _ipu_model(config: ConfigRoot) -> None:
    if use_ipu_model() and not config.ipu_model.version:
        raise ValueError("ipu_model.version must be set when using the IPUModel.")


_RULES = (_types, _selection, _batch_norm_groups, _connection, _distribution, _io_tiles, _ipu_model)
