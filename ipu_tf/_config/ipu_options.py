"""`IpuOptions`: a configuration as Graphcore's record, with Graphcore's field names."""

from __future__ import annotations

import copy
import json
from typing import Any, Self

from ipu_tf._config.ipu_option_fields import OptionFields, fields_of
from ipu_tf._config.schema import ConfigRoot

_MAGIC = b"ipu_tf configuration "


class IpuOptions(OptionFields):
    """Configuration of a device: `get_ipu_config` returns one for each device; `configure_ipu_system` takes one.

    The fields have the names of Graphcore's protobuf message of the same name. `device_config` is a tuple of
    `DeviceConfig`, options of libraries are tuples of `PoplarOption`, and enumerations are their ints. As bytes
    it has a form of this project's own.

    Example:
        >>> from ipu_tf.config import IPUConfig
        >>> options = IPUConfig()._create_protobuf()
        >>> IpuOptions.FromString(options.SerializeToString()) == options
        True
    """

    def __init__(self, config: ConfigRoot | None = None) -> None:
        """Record `config`, which has been validated; by default a configuration of defaults."""
        super().__init__({})
        self._record(config or ConfigRoot())

    def to_dict(self) -> dict[str, Any]:
        """Returns the attributes of the configuration it was made from, as `IPUConfig.to_dict` does."""
        attributes: dict[str, Any] = copy.deepcopy(self.__dict__["_attributes"])
        return attributes

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name it has in protocol buffers
        """The record as bytes."""
        return _MAGIC + json.dumps(self.to_dict()).encode()

    def ParseFromString(self, text: bytes) -> int:  # noqa: N802 - the name it has in protocol buffers
        """Parses the result of `SerializeToString` into this object; returns its length.

        Raises:
            ValueError: if it did not.
        """
        if not text.startswith(_MAGIC):
            raise ValueError(f"These bytes are no IpuOptions of this project: {text[:40]!r}.")
        config = ConfigRoot()
        config.from_json(text.removeprefix(_MAGIC).decode())
        self._record(config)
        return len(text)

    @classmethod
    def FromString(cls, text: bytes) -> Self:  # noqa: N802 - the name it has in protocol buffers
        """The record that `SerializeToString` turned into `text`."""
        options = cls()
        options.ParseFromString(text)
        return options

    def _record(self, config: ConfigRoot) -> None:
        self.__dict__.update(_fields=fields_of(config), _attributes=config.to_dict())
