"""The IPU configuration: `IPUConfig`, the functions that apply it, and the enumerations it uses."""

from __future__ import annotations

from typing import Any

from ipu_tf._config import state as config_state
from ipu_tf._config.base import deprecate_config_attribute, deprecate_config_attributes, documented
from ipu_tf._config.declared import DeclaredConfig as _ConfigBase
from ipu_tf._config.devices import check_cpu_device
from ipu_tf._config.enums import (
    DeviceConnectionType,
    ExecutionProfileType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
)
from ipu_tf._config.flags import use_ipu_model
from ipu_tf._config.ignored_options import EmulationWarning, IgnoredOption, ignored_in
from ipu_tf._config.ipu_options import IpuOptions
from ipu_tf._config.metadata import AttributeMetadata
from ipu_tf._config.schema import ConfigRoot
from ipu_tf._config.validation import validate

__all__ = [
    "_ConfigBase",
    "AttributeMetadata",
    "DeviceConnectionType",
    "EmulationWarning",
    "ExecutionProfileType",
    "IPUConfig",
    "IgnoredOption",
    "IpuOptions",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "StochasticRoundingBehaviour",
    "configure_ipu_system",
    "deprecate_config_attribute",
    "deprecate_config_attributes",
    "get_ipu_config",
    "ignored_options",
    "reset_ipu_configuration",
    "running_on_ipu_model",
]


@documented
class IPUConfig(ConfigRoot):
    """The configuration of the IPU system: attributes, some of them in categories.

    Attributes are set like those of any object; names and types are checked. Nothing happens until
    `configure_ipu_system` is called.

    Example:
        >>> from ipu_tf.config import IPUConfig
        >>> cfg = IPUConfig()
        >>> cfg.auto_select_ipus = [1, 2]
        >>> cfg.io_tiles.num_io_tiles
        0
        >>> cfg.io_tiles.num_io_tiles = True
        Traceback (most recent call last):
            ...
        TypeError: Trying to set io_tiles.num_io_tiles to True, but it must be of type int

    The attributes:
    """

    def __init__(self) -> None:
        """A configuration with every attribute at its default."""
        super().__init__()

    def configure_ipu_system(self, device: str = "cpu") -> None:
        """Apply this configuration to the process; see the function `configure_ipu_system`."""
        configure_ipu_system(self, device)

    def _create_protobuf(self) -> IpuOptions:
        """The checked record of this configuration, under the name it has in Graphcore's class."""
        validate(self)
        return IpuOptions(self)


def configure_ipu_system(config: IPUConfig | IpuOptions, device: str = "cpu", reset_configuration: bool = True) -> None:
    """Apply a configuration to this process.

    The same configuration again does nothing. Another one first resets the system, which drops the variables
    that live on its devices. One log line says which emulated devices there are. An attribute that would
    change what an IPU does, but is not emulated, warns with an `EmulationWarning`, once for each of its
    values; `ignored_options` lists every attribute that was set and has no effect.

    Args:
        config: the configuration, or a record of one from `get_ipu_config`.
        device: the CPU device that is local to the IPUs. Any CPU of this host does.
        reset_configuration: whether another configuration may be replaced.

    Raises:
        TypeError: if `config` is neither, or holds values of wrong types.
        ValueError: if attributes contradict each other or are out of range, or `device` names no CPU.
        tf.errors.FailedPreconditionError: if the system has another configuration and `reset_configuration`
            is False, or a device asks for more IPUs than there are.
        tf.errors.InvalidArgumentError: if `select_ipus` has an id that does not exist.
    """
    check_cpu_device(device)
    config_state.configure(_as_config(config), reset_configuration)


def reset_ipu_configuration() -> None:
    """Forget the configuration, dropping all that lives on the devices. Fine if nothing is configured."""
    config_state.reset()


def get_ipu_config(session: Any = None) -> list[IpuOptions]:
    """The configuration of the system, once for each of its devices.

    Args:
        session: a TF1 session, accepted for compatibility. The configuration is the process's in any case.

    Raises:
        RuntimeError: if nothing is configured.
    """
    system = config_state.configured_system()
    if system is None:
        raise RuntimeError("No IPU devices configured.")
    return [system.options] * len(system.devices)


def running_on_ipu_model() -> bool:
    """Returns whether TF_POPLAR_FLAGS asks for the IPU model. It adds checks; the emulator is the same."""
    return use_ipu_model()


def ignored_options() -> tuple[IgnoredOption, ...]:
    """The attributes of the current configuration that were set and have no effect.

    Each comes with its value and the reason. A value equal to the default is not listed, and nothing is if no
    system is configured.
    """
    system = config_state.configured_system()
    return () if system is None else ignored_in(system.config)


def _as_config(config: IPUConfig | IpuOptions) -> IPUConfig:
    if isinstance(config, IPUConfig):
        return config
    if not isinstance(config, IpuOptions):
        raise TypeError("`config` must be an IpuOptions instance.")
    restored = IPUConfig()
    restored.from_dict(config.to_dict())
    return restored
