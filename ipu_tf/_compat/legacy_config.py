"""Configuration functions of SDK 2.3 and older: each sets the `IPUConfig` attributes that replaced it.

opts = create_ipu_config()                   opts = IPUConfig()
opts = set_matmul_options(opts, {"a": "b"})  opts.matmuls.poplar_options = {"a": "b"}
opts = auto_select_ipus(opts, 2)             opts.auto_select_ipus = 2
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ipu_tf._config.enums import (
    DeviceConnectionType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
)
from ipu_tf._config.ignored_options import EmulationWarning
from ipu_tf._config.messages import warn_user
from ipu_tf.config import IPUConfig

_NEEDED = inspect.Parameter.empty
_NO_REPORT = (
    "The emulated IPU has no Poplar reports or traces: nothing is written. Leave the argument out; "
    "`ipu_tf.emulation.device_counts()` says what the device did."
)
_NO_CHECK = "Transfers to an emulated IPU are not encrypted or verified. Leave the argument out."


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of one of these functions.

    Attributes:
        name: its name.
        default: its default; `inspect.Parameter.empty` for one that must be given.
        attribute: the attribute of `IPUConfig` that replaced it; empty for one that nothing did.
        change: from the argument to the attribute's value.
        reason: what happens to an argument without an attribute.
    """

    name: str
    default: Any = _NEEDED
    attribute: str = ""
    change: Callable[[Any], Any] = lambda value: value
    reason: str = _NO_REPORT


def _algorithm(value: SchedulingAlgorithm | str) -> SchedulingAlgorithm:
    if isinstance(value, SchedulingAlgorithm):
        return value
    names = {item.name.replace("_", "").lower(): item for item in SchedulingAlgorithm} | {
        "": SchedulingAlgorithm.CHOOSE_BEST
    }
    if value.lower() not in names:
        wanted = "Clustering, PostOrder, LookAhead, ShortestPath or an empty string"
        raise ValueError(f"scheduler_selection must be {wanted}. Received: {value!r}.")
    return names[value.lower()]


def _merging(value: MergeRemoteBuffersBehaviour | bool) -> MergeRemoteBuffersBehaviour:
    if isinstance(value, bool):
        return MergeRemoteBuffersBehaviour.MERGE if value else MergeRemoteBuffersBehaviour.NO_MERGING
    return value


def _rounding(value: StochasticRoundingBehaviour | bool) -> StochasticRoundingBehaviour:
    return StochasticRoundingBehaviour.from_bool(value) if isinstance(value, bool) else value


def _version(value: str | int) -> str:
    return f"ipu{value}" if isinstance(value, int) else value


def _same(prefix: str, **defaults: Any) -> tuple[Argument, ...]:
    """Arguments that have the names of attributes, in a category."""
    return tuple(Argument(name, default, prefix + name) for name, default in defaults.items())


def _maximum(*names: str) -> tuple[Argument, ...]:
    """`max_x` for the attributes `optimizations.maximum_x`."""
    return tuple(Argument(f"max_{name}", 0, f"optimizations.maximum_{name}") for name in names)


def _options(name: str, attribute: str) -> tuple[Argument, ...]:
    return (Argument(name, None, attribute),)


_REPORT_ARGUMENTS = {
    "profiling": False,
    "enable_ipu_events": False,
    "use_poplar_text_report": False,
    "use_poplar_cbor_report": False,
    "profile_execution": None,
    "enable_poplar_serialized_graph": False,
    "report_every_nth_execution": 0,
    "max_report_size": 268435456,
    "report_directory": "",
}

#: function -> its arguments, after the first, `opts`. `create_ipu_config` has no such first argument.
ARGUMENTS: Mapping[str, tuple[Argument, ...]] = {
    "create_ipu_config": (
        *(Argument(name, default) for name, default in _REPORT_ARGUMENTS.items()),
        Argument("scheduler_selection", SchedulingAlgorithm.CHOOSE_BEST, "scheduling.algorithm", _algorithm),
        *_same("experimental.", always_rearrange_copies_on_the_host=False),
        *_same("optimizations.", merge_infeed_io_copies=False),
        Argument("disable_graph_outlining", False, "optimizations.enable_graph_outlining", lambda value: not value),
        Argument("max_scheduler_lookahead_depth", 5, "scheduling.maximum_scheduler_lookahead_depth"),
        Argument("max_scheduler_search_space_size", 64, "scheduling.maximum_scheduler_search_space_size"),
        *_same("optimizations.", prefetch_data_streams=True),
        *_same("", selection_order=SelectionOrder.AUTO),
        Argument("enable_experimental_remote_buffer_embedding", False, "experimental.enable_remote_buffer_embedding"),
    ),
    "set_serialization_options": (Argument("output_folder", "", "serialization_output_folder"),),
    "set_optimization_options": (
        *_same("optimizations.", combine_embedding_lookups=False, combine_matmuls=False),
        *_maximum(
            "cross_replica_sum_buffer_size",
            "reduce_scatter_buffer_size",
            "inter_ipu_copies_buffer_size",
            "send_recv_cluster_size",
        ),
        *_same("optimizations.", minimum_remote_tensor_size=128),
        Argument(
            "merge_remote_buffers",
            MergeRemoteBuffersBehaviour.NO_MERGING,
            "optimizations.merge_remote_buffers",
            _merging,
        ),
        Argument("gather_simplifier", True, "optimizations.enable_gather_simplifier"),
        *_same("optimizations.", triangular_solve_expander_block_size=0, cholesky_block_size=0),
        Argument("enable_fast_math", False, "optimizations.math.fast"),
    ),
    "set_norm_options": (
        *_same("norms.", use_stable_statistics=False),
        Argument(
            "experimental_distributed_batch_norm_replica_group_size",
            1,
            "norms.experimental.distributed_batch_norm_replica_group_size",
        ),
    ),
    "set_transfer_options": (Argument("use_verified_transfers", False, reason=_NO_CHECK),),
    "set_verification_options": (Argument("verification_options", reason=_NO_CHECK),),
    "set_compilation_options": _options("compilation_options", "compilation_poplar_options"),
    "set_convolution_options": _options("convolution_options", "convolutions.poplar_options"),
    "set_matmul_options": (
        *_options("matmul_options", "matmuls.poplar_options"),
        *_same("matmuls.", clear_pass_type=False),
    ),
    "set_pooling_options": _options("pooling_options", "pooling.poplar_options"),
    "set_report_options": (Argument("graph_options", None), Argument("execution_options", None)),
    "set_ipu_model_options": (
        *_same("ipu_model.", compile_ipu_code=True, tiles_per_ipu=None),
        Argument("ipu_model_version", "ipu2", "ipu_model.version", _version),
    ),
    "set_recomputation_options": _same("", allow_recompute=True),
    "set_floating_point_behaviour_options": (
        *_same("floating_point_behaviour.", inv=True, div0=True, oflo=True),
        Argument("esr", True, "floating_point_behaviour.esr", _rounding),
        *_same("floating_point_behaviour.", nanoo=True),
    ),
    "set_io_tile_options": (
        *_same("io_tiles.", num_io_tiles=_NEEDED, place_ops_on_io_tiles=None),
        Argument("io_tile_available_memory_proportion", 0.9, "io_tiles.available_memory_proportion"),
    ),
    "set_gcl_options": _options("gcl_options", "gcl_poplar_options"),
    "auto_select_ipus": (Argument("num_ipus", attribute="auto_select_ipus"),),
    "select_ipus": (Argument("indices", attribute="select_ipus"),),
    "set_ipu_connection_type": (
        Argument("connection_type", DeviceConnectionType.ALWAYS, "device_connection.type"),
        Argument("ipu_version", "", "device_connection.version", _version),
        *_same("device_connection.", enable_remote_buffers=False),
    ),
    "set_experimental_multi_replica_distribution_options": _same(
        "experimental.multi_replica_distribution.", process_count=_NEEDED, process_index=_NEEDED
    ),
}


def former_function(name: str) -> Callable[..., IPUConfig]:
    """The function of this name in `ARGUMENTS`.

    It takes an `IPUConfig` (but for `create_ipu_config`, which makes one), sets its attributes, and returns it. An
    argument that is None changes nothing; dicts of options add to those there are. An argument that nothing
    replaced warns with an `EmulationWarning` if it is given.

    Example:
        >>> config = former_function("auto_select_ipus")(IPUConfig(), 2)
        >>> config.auto_select_ipus
        2
    """
    arguments = {argument.name: argument for argument in ARGUMENTS[name]}
    creates = name == "create_ipu_config"
    signature = _signature(arguments.values(), creates)

    def function(*args: Any, **kwargs: Any) -> IPUConfig:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        config = IPUConfig() if creates else _checked(name, bound.arguments.pop("opts"))
        for key, value in bound.arguments.items():
            _apply(config, name, arguments[key], value)
        return config

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _documentation(name, arguments.values())
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _signature(arguments: Any, creates: bool) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    given = [inspect.Parameter(argument.name, kind, default=argument.default) for argument in arguments]
    return inspect.Signature(given if creates else [inspect.Parameter("opts", kind), *given])


def _checked(name: str, opts: Any) -> IPUConfig:
    if not isinstance(opts, IPUConfig):
        raise TypeError(f"{name} takes an IPUConfig, such as create_ipu_config() gives. Received: {opts!r}.")
    return opts


def _apply(config: IPUConfig, function: str, argument: Argument, value: Any) -> None:
    if not argument.attribute:
        if value and value != argument.default:
            warn_user(f"{function}({argument.name}={value!r}) is not emulated. {argument.reason}", EmulationWarning)
        return
    if value is None:
        return
    *parents, last = argument.attribute.split(".")
    owner: Any = config
    for parent in parents:
        owner = getattr(owner, parent)
    changed = argument.change(value)
    setattr(owner, last, {**getattr(owner, last), **changed} if isinstance(changed, dict) else changed)


def _documentation(name: str, arguments: Any) -> str:
    lines = [
        f"    {argument.name}: " + (f"sets `{argument.attribute}`." if argument.attribute else "warns if it is given.")
        for argument in arguments
    ]
    if name != "create_ipu_config":
        lines.insert(0, "    opts: an `IPUConfig`, which is changed.")
    head = "What this function of SDK 2.3 and earlier did, with an `IPUConfig`; set its attributes instead."
    return "\n".join([head, "", "Args:", *lines, "", "Returns:", "    The `IPUConfig`."])
