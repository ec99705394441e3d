"""Enumerations of IPU configuration attributes; their values are saved in JSON."""

from __future__ import annotations

from enum import Enum


class SelectionOrder(Enum):
    """The order in which physical IPUs are given to the shards of a program.

    `AUTO` leaves the choice to the system, `ZIGZAG` follows the numbering of the IPUs, `SNAKE` keeps
    consecutive shards on linked IPUs, and `HOOF` also links the last shard to the first. Emulated IPUs have
    no links to choose.
    """

    AUTO = 0
    ZIGZAG = 1
    SNAKE = 2
    HOOF = 3


class ExecutionProfileType(Enum):
    """Granularity of an execution profile on hardware: none, by device, by IPU, or by tile."""

    NO_PROFILE = 0
    DEVICE_PROFILE = 1
    IPU_PROFILE = 2
    TILE_PROFILE = 3


class DeviceConnectionType(Enum):
    """When the system takes hold of an IPU.

    `ALWAYS` does so at configuration, `ON_DEMAND` at the first execution, `NEVER` not at all (programs are
    only compiled), and `PRE_COMPILE` not at all with every output read as zeros.
    """

    ALWAYS = 0
    ON_DEMAND = 1
    NEVER = 2
    PRE_COMPILE = 3


class MergeRemoteBuffersBehaviour(Enum):
    """Merging of compatible remote buffers: never, always, or where code can be shared by it."""

    NO_MERGING = 0
    MERGE = 1
    IF_BENEFICIAL = 2


class SchedulingAlgorithm(Enum):
    """Scheduling algorithm of a program's instructions.

    `CHOOSE_BEST` takes the order with the lowest predicted memory use among the others: `CLUSTERING`,
    `POST_ORDER`, `LOOK_AHEAD` and `SHORTEST_PATH`.
    """

    CHOOSE_BEST = 0
    CLUSTERING = 1
    POST_ORDER = 2
    LOOK_AHEAD = 3
    SHORTEST_PATH = 4


class StochasticRoundingBehaviour(Enum):
    """Use of stochastic rounding of float16 results: nowhere, everywhere, or where replicas agree."""

    OFF = 0
    ON = 1
    REPLICA_IDENTICAL_ONLY = 2

    @staticmethod
    def from_bool(value: bool) -> StochasticRoundingBehaviour:
        """`ON` for a true `value`, `OFF` for a false one.

        Example:
            >>> StochasticRoundingBehaviour.from_bool(True)
            <StochasticRoundingBehaviour.ON: 1>
        """
        return StochasticRoundingBehaviour.ON if value else StochasticRoundingBehaviour.OFF
