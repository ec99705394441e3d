"""Configures a device with a number of IPUs."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import ipu_tf as ipu
from ipu_tf.config import EmulationWarning


@contextlib.contextmanager
def ipus(
    count: int, norm_group: int = 1, graphcore_rules: bool | None = None, stochastic_rounding: bool = False
) -> Iterator[ipu.ipu_strategy.IPUStrategyV1]:
    """A strategy for `/device:IPU:0` with `count` IPUs; the configuration is dropped afterwards.

    Args:
        count: of IPUs.
        norm_group: how many replicas normalise a batch together.
        graphcore_rules: whether data that Graphcore's Keras refuses is refused; None for the default.
        stochastic_rounding: whether float16 results are rounded so.
    """
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = count
    if graphcore_rules is not None:
        config.graphcore_rules = graphcore_rules
    config.floating_point_behaviour.esr = ipu.config.StochasticRoundingBehaviour.from_bool(stochastic_rounding)
    config.norms.experimental.distributed_batch_norm_replica_group_size = norm_group
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "norms.experimental.distributed_batch_norm", EmulationWarning)
        config.configure_ipu_system()
    try:
        yield ipu.ipu_strategy.IPUStrategy()
    finally:
        ipu.config.reset_ipu_configuration()
