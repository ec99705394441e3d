"""A configured device with a number of IPUs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import ipu_tf as ipu


@contextlib.contextmanager
def ipus(count: int) -> Iterator[ipu.ipu_strategy.IPUStrategyV1]:
    """A strategy for `/device:IPU:0` with `count` IPUs; the configuration is dropped afterwards."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = count
    config.configure_ipu_system()
    try:
        yield ipu.ipu_strategy.IPUStrategy()
    finally:
        ipu.config.reset_ipu_configuration()
