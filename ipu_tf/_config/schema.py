"""Root of the IPU configuration: its own attributes and its categories."""

from __future__ import annotations

from ipu_tf._config.base import ConfigBase
from ipu_tf._config.default_rules import rules_hold_by_default
from ipu_tf._config.enums import SelectionOrder
from ipu_tf._config.library_options import is_emulated
from ipu_tf._config.option import Group, Option
from ipu_tf._config.schema_compiler import Optimizations, Scheduling
from ipu_tf._config.schema_device import DeviceConnection, Experimental, IoTiles, IpuModel
from ipu_tf._config.schema_numerics import Convolutions, FloatingPointBehaviour, Matmuls, Norms, Pooling, Slices
from ipu_tf._config.treatment import COLLECTIVES, COMPILER, MEMORY, modelled, no_effect
from ipu_tf._config.types import IPU_NUMBERS


class ConfigRoot(ConfigBase):
    """Every attribute of the configuration, without the means to apply it."""

    allow_recompute = Option(
        False,
        "Whether the backward pass may compute activations again instead of keeping them.",
        MEMORY,
    )
    selection_order = Option(
        SelectionOrder.AUTO,
        "The order in which physical IPUs are given to the shards of a program: a `SelectionOrder`.",
        no_effect("Emulated IPUs are all alike and have no links."),
    )
    serialization_output_folder = Option(
        "",
        "The directory in which compiled programs are saved; empty to save none.",
        modelled("Programs are saved in this project's own open format (`.ipu_exec`), which no IPU can run."),
    )
    compilation_poplar_options: Option[dict[str, str]] = Option(
        {},
        "Options of Poplar's compiler, as a dict from option names to strings.",
        modelled(
            "Those of autoReport, of debug.allowOutOfMemory and debug.retainDebugInformation: see docs/reports.md."
        ),
        exceptions=[(lambda value: not any(map(is_emulated, value)), COMPILER)],
    )
    gcl_poplar_options: Option[dict[str, str]] = Option(
        {}, "Options of the collectives' library, as a dict from option names to strings.", COLLECTIVES
    )
    auto_select_ipus: Option[int | list[int] | tuple[int, ...]] = Option(
        [],
        """How many IPUs each TensorFlow device has. One number makes one device, `/device:IPU:0`; a list or
        tuple makes a device for each of its numbers, `/device:IPU:0`, `/device:IPU:1` and so on.

        Every number from 1 to 16 is accepted, 3 as well, as on the IPU model; hardware takes only the sizes
        that its links form. The environment variable TF_IPU_COUNT sets another maximum. Devices do not
        compete for emulated IPUs: the maximum holds for each device. If neither this nor `select_ipus` is set
        there is one device with one IPU.

        .. code-block:: python

           cfg = IPUConfig()
           cfg.auto_select_ipus = 1  # one device with one IPU
           cfg.auto_select_ipus = [2, 2]  # two devices with two IPUs each""",
        modelled("Each device has as many emulated IPUs."),
        value_type=IPU_NUMBERS,
    )
    select_ipus: Option[int | list[int] | tuple[int, ...]] = Option(
        [],
        """Which configuration of IPUs each TensorFlow device has, by its id: one id, or a list or tuple of
        ids, one for each device. Ids must differ, and `auto_select_ipus` must not be set as well.

        The ids are those of one fixed table. On the emulated machine of 16 IPUs, ids 0 to 15 have one IPU
        each, 16 to 23 two, 24 to 27 four, 28 and 29 eight, and 30 all sixteen. With another TF_IPU_COUNT the
        table is made in the same way: single IPUs, then pairs, then fours and so on, as many as there are.

        .. code-block:: python

           cfg = IPUConfig()
           cfg.select_ipus = [24, 0]  # a device with four IPUs and a device with one""",
        modelled("Each device has as many emulated IPUs as the table says."),
        value_type=IPU_NUMBERS,
    )
    convolutions = Group(Convolutions, "Options of convolutions.")
    device_connection = Group(DeviceConnection, "When and how IPUs are taken hold of.")
    slices = Group(Slices, "Options of slices.")
    experimental = Group(Experimental, "Options that may change or go.")
    floating_point_behaviour = Group(
        FloatingPointBehaviour, "What floating-point exceptions do and how float16 results are rounded."
    )
    io_tiles = Group(IoTiles, "Tiles that are set aside to move data in and out.")
    ipu_model = Group(IpuModel, "The IPU model, Poplar's simulator. Read only if TF_POPLAR_FLAGS asks for it.")
    matmuls = Group(Matmuls, "Options of matrix products.")
    norms = Group(Norms, "Options of normalisation.")
    optimizations = Group(Optimizations, "What the compiler may do to make programs smaller or faster.")
    pooling = Group(Pooling, "Options of pooling.")
    scheduling = Group(Scheduling, "How the compiler orders the instructions of a program.")
    graphcore_rules = Option(
        False,
        """Whether Keras data has to be as Graphcore's Keras wants it: shapes that are known before the first batch, no
        batch smaller than the others, a number of batches that `steps_per_execution` and the replicas divide. Other
        data, and `run_eagerly=True`, then raise Graphcore's errors; with False they work as in stock Keras.

        The default is True under the launcher (`python -m ipu_tf SCRIPT`) and after `ipu_tf.install_aliases()`.
        Graphcore's configuration has no such attribute.""",
        modelled("Graphcore's checks of data, and of `run_eagerly`, are on or off."),
        of_process=rules_hold_by_default,
    )
