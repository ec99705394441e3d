"""Configuration categories of devices: connection, IPU model, IO tiles, distribution."""

from __future__ import annotations

from ipu_tf._config.base import ConfigBase
from ipu_tf._config.enums import DeviceConnectionType
from ipu_tf._config.option import Group, Option
from ipu_tf._config.treatment import CHECKED, MEMORY, modelled, no_effect, warns
from ipu_tf.device.instances.joined import is_joined

_MODEL = no_effect("The emulator runs no IPU code and models no tiles.")
_LAYOUT = no_effect("Data has one layout here, for the host and the emulated IPU alike.")
_SEEDED = modelled("What all replicas compute alike they also round alike.")


class DeviceConnection(ConfigBase):
    """The category `device_connection`."""

    type = Option(
        DeviceConnectionType.ALWAYS,
        """When to take hold of the IPUs: a `DeviceConnectionType`. `NEVER` and `PRE_COMPILE` are for machines
        that compile programs for others to run; they need `device_connection.version`.""",
        modelled("`NEVER` compiles programs and refuses to run them; results of `PRE_COMPILE` are zeros."),
        exceptions=[
            (
                lambda value: value is DeviceConnectionType.ON_DEMAND,
                no_effect("An emulated IPU is always there, so ON_DEMAND and ALWAYS are the same."),
            )
        ],
    )
    version = Option(
        "",
        """The IPU architecture to compile for: "ipu1", "ipu2" or "ipu21". Needed when no device is at hand to
        ask, that is for the connection types `NEVER` and `PRE_COMPILE`; otherwise left empty.""",
        CHECKED,
    )
    enable_remote_buffers = Option(
        False,
        """Whether the machine that will run the programs has remote buffers, which are memory of the host
        that the IPU reads and writes. It counts only where no device can be asked, so not with `ALWAYS`.""",
        MEMORY,
    )


class IpuModel(ConfigBase):
    """The category `ipu_model`."""

    compile_ipu_code = Option(True, "Whether the IPU model compiles the code of the tiles.", _MODEL)
    tiles_per_ipu = Option(0, "The number of tiles of a modelled IPU; 0 for that of `version`.", _MODEL, least=0)
    version = Option(
        "ipu2",
        """The IPU architecture to model: "ipu1" or "ipu2". It must not be empty on the IPU model.""",
        CHECKED,
    )


class IoTiles(ConfigBase):
    """The category `io_tiles`."""

    num_io_tiles = Option(
        0, "How many tiles of each IPU are set aside to move data in and out.", CHECKED, least=0, most=1472
    )
    place_ops_on_io_tiles = Option(
        False,
        """Whether input and output run on the tiles set aside, beside the computation. It needs some of them:
        see `io_tiles.num_io_tiles`.""",
        CHECKED,
    )
    available_memory_proportion = Option(
        0.9, "The part of the I/O tiles' memory that may hold data; the rest is for code.", MEMORY, least=0, most=1
    )


class MultiReplicaDistribution(ConfigBase):
    """The category `experimental.multi_replica_distribution`."""

    process_index = Option(0, "Which of the processes this one is, from 0 to `process_count` - 1.", CHECKED)
    process_count = Option(
        0,
        """How many processes run the same program together, each with its share of the replicas: the program
        has `process_count` times as many replicas as this process. 0 for a process on its own.""",
        warns("This process runs on its own: it has its own replicas only and reduces over no others."),
        exceptions=[
            (lambda value: value == 1, no_effect("One process is a process on its own.")),
            (is_joined, modelled("Programs run in all instances that were joined, and reduce over their replicas.")),
        ],
        least=0,
    )


class Experimental(ConfigBase):
    """The category `experimental`."""

    always_rearrange_copies_on_the_host = Option(
        False,
        "Whether data whose layout differs between host and IPU is rearranged on the host, not on the IPU.",
        _LAYOUT,
    )
    enable_remote_buffer_embedding = Option(
        False, "Whether host embedding tables are kept in remote buffers, which the IPU itself reads.", MEMORY
    )
    enable_prng_stability = Option(
        False,
        "Whether seeds are managed so that replicas with stochastic rounding keep equal weights.",
        _SEEDED,
    )
    multi_replica_distribution = Group(
        MultiReplicaDistribution, "How several processes share the replicas of one program."
    )
