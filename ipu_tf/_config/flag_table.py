"""Table of all flags of `TF_POPLAR_FLAGS`: type, default, effect in emulation."""

from __future__ import annotations

import dataclasses

from ipu_tf._config.treatment import COMPILER, Treatment, modelled, no_effect, warns

FlagValue = bool | int | str

_THREADS = no_effect("The emulator chooses its own threads; results do not depend on them.")
_ATTACHED = no_effect("An emulated IPU is always there: no program waits for one.")
_DUMP = warns("There is no such thing in emulation: no file is written.")


@dataclasses.dataclass(frozen=True)
class Flag:
    """One flag.

    Attributes:
        name: its name, without the dashes.
        default: its value where it is not given; also says its type.
        meaning: what it does.
        treatment: what comes of another value here.
        refused: whether another value is an error, because what it asks for cannot be given.
    """

    name: str
    default: FlagValue
    meaning: str
    treatment: Treatment
    refused: bool = False

    @property
    def usage(self) -> str:
        """A line of the list that `--help` prints."""
        kind = type(self.default).__name__
        effect = "refused" if self.refused else self.treatment.effect.value
        return f"  --{self.name} ({kind}, default {self.default!r}): {self.meaning} [{effect}]"


FLAGS: tuple[Flag, ...] = (
    Flag("help", False, "Print this list when the system is configured.", modelled("The list is printed.")),
    Flag(
        "use_ipu_model",
        False,
        "Run on the IPU model, not on an IPU. Both are emulated alike; the checks that only the model makes are made.",
        modelled("`running_on_ipu_model()` is True, and the model's checks of the configuration are made."),
    ),
    Flag(
        "ipu_model_tiles",
        -1,
        "The number of tiles of the IPU model, unless `ipu_model.tiles_per_ipu` is set.",
        no_effect("Tiles are not emulated."),
    ),
    Flag(
        "use_synthetic_data",
        False,
        "Move no data between host and device: synthetic data in every category.",
        modelled("Programs work on synthetic data, and nothing of theirs reaches the host."),
    ),
    Flag(
        "synthetic_data_categories",
        "",
        "Synthetic data for some categories only: a comma-separated list of infeed, outfeed, seed, hostembedding, "
        "parameters.",
        modelled("As `use_synthetic_data`, for these categories."),
    ),
    Flag(
        "synthetic_data_initializer",
        "",
        "What synthetic tensors hold: 'random', 'uniform', 'normal' or a whole number; zeros if it is not given.",
        modelled("Synthetic tensors hold these values."),
    ),
    Flag(
        "null_data_feed",
        False,
        "Infeeds give the device the same meaningless data again and again instead of their datasets' elements.",
        modelled("Infeeds give zeros."),
    ),
    Flag(
        "log_cycle_count",
        -1,
        "Log the number of cycles that programs take on the tile of this number.",
        warns(
            "An emulated IPU has no cycles to count. Leave the flag out; `jax.profiler` measures this machine's time."
        ),
        refused=True,
    ),
    Flag(
        "while_loop_brute_force_max_trip_count",
        128,
        "The most iterations that the compiler tries in order to find how often a loop runs.",
        COMPILER,
    ),
    Flag("max_compilation_threads", -1, "The most threads for compilation; negative for Poplar's choice.", _THREADS),
    Flag("max_infeed_threads", -1, "The most threads for each infeed; negative for a choice of its own.", _THREADS),
    Flag(
        "executable_cache_path",
        "",
        "The directory in which compiled programs are kept for later processes.",
        modelled("The directory is used for this project's own files, which no IPU can run."),
    ),
    Flag("dump_schedule_as_dot", False, "Write the schedule of each program as a graph.", _DUMP),
    Flag("tensor_map_file_path", "", "The directory for files that say on which tiles tensors lie.", _DUMP),
    Flag("save_vertex_graph", "", "The directory for the vertex graphs of programs.", _DUMP),
    Flag("fallback_scheduler", False, "Order instructions with the simplest scheduler.", COMPILER),
    Flag("enable_hlo_verifier", False, "Check programs before and after each step of compilation.", COMPILER),
    Flag(
        "disable_poplar_version_check",
        False,
        "Accept a Poplar of another version.",
        no_effect("There is no Poplar here."),
    ),
    Flag(
        "sync_replica_start",
        False,
        "Start the program of every replica at the same moment.",
        no_effect("Emulated replicas run in step."),
    ),
    Flag("allow_nans", False, "Accept NaNs among the constants of a program.", no_effect("NaNs are always accepted.")),
    Flag(
        "show_progress_bar",
        "auto",
        "Whether compilation shows a progress bar: 'auto', 'true' or 'false'.",
        no_effect("No progress bar is shown."),
    ),
    Flag(
        "use_on_demand",
        False,
        "Take `device_connection.type` for ON_DEMAND, whatever it is set to.",
        modelled("The configuration says ON_DEMAND."),
    ),
    Flag("on_demand_device_poll_time", 1000, "Milliseconds between attempts to take hold of an IPU.", _ATTACHED),
    Flag("on_demand_device_timeout", 3600000, "Milliseconds after which such attempts end.", _ATTACHED),
)


def usage() -> str:
    """The list of flags that `--help` prints and that errors show.

    Example:
        >>> usage().splitlines()[0]
        'TF_POPLAR_FLAGS takes these flags; in brackets, what they do in emulation:'
    """
    head = "TF_POPLAR_FLAGS takes these flags; in brackets, what they do in emulation:"
    return "\n".join([head, *(flag.usage for flag in FLAGS)])
