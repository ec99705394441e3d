"""Configures one IPU and makes a strategy for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ipu_tf as ipu


@pytest.fixture
def strategy() -> Iterator[ipu.ipu_strategy.IPUStrategyV1]:
    """A strategy for the one configured IPU; the configuration is dropped afterwards."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    yield ipu.ipu_strategy.IPUStrategy()
    ipu.config.reset_ipu_configuration()
