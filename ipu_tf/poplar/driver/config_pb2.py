"""Configuration record of Graphcore's plugin, and its enumerations."""

from __future__ import annotations

from ipu_tf.config import IpuOptions
from ipu_tf.poplar.enumeration import ProtoEnum
from ipu_tf.poplar.refusal import refuse_others

__all__ = [
    "IpuDeviceConnectionType",
    "IpuExecutionProfileType",
    "IpuOptions",
    "IpuSchedulingAlgorithm",
    "IpuSelectionOrder",
    "StochasticRoundingBehaviour",
    "SyntheticDataCategory",
]


class IpuSelectionOrder(ProtoEnum):
    """Order in which IPUs are assigned to shards."""

    AUTO = 0
    ZIGZAG = 1
    SNAKE = 2
    HOOF = 3


class IpuDeviceConnectionType(ProtoEnum):
    """Time at which devices are attached."""

    ALWAYS = 0
    ON_DEMAND = 1
    NEVER = 2
    PRE_COMPILE = 3


class IpuExecutionProfileType(ProtoEnum):
    """Granularity of execution profiles."""

    NO_PROFILE = 0
    DEVICE_PROFILE = 1
    IPU_PROFILE = 2
    TILE_PROFILE = 3


class IpuSchedulingAlgorithm(ProtoEnum):
    """Scheduling algorithm of a program's operations."""

    CHOOSE_BEST = 0
    CLUSTERING = 1
    POST_ORDER = 2
    LOOK_AHEAD = 3
    SHORTEST_PATH = 4


class SyntheticDataCategory(ProtoEnum):
    """Categories of synthetic data."""

    Seed = 0
    Infeed = 1
    Outfeed = 2
    HostEmbedding = 3
    Parameters = 4
    Unknown = 5


class StochasticRoundingBehaviour(ProtoEnum):
    """Modes of stochastic rounding of float16 results."""

    StochasticRounding_Off = 0
    StochasticRounding_On = 1
    StochasticRounding_ReplicaIdenticalOnly = 2


__getattr__ = refuse_others(__name__, "this message is not emulated. Use ipu.config.IPUConfig.")
