"""`IPURunConfig` and `RunConfig`: run configuration of an `IPUEstimator`."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from ipu_tf._arguments.counts import checked_count, checked_integer
from ipu_tf._tracing.queue_arguments import checked_prefetch_depth
from ipu_tf.config import IPUConfig
from ipu_tf.emulation import EmulationError
from ipu_tf.tf_estimator import run_config

__all__ = ["IPURunConfig", "RunConfig"]


class _Fields(NamedTuple):
    iterations_per_loop: int
    ipu_options: Any
    num_replicas: int
    num_shards: int
    ordinal: int
    prefetch_depth: int | None


class IPURunConfig(_Fields):
    """Device options of an estimator's programs.

    Args:
        iterations_per_loop: batches that a program consumes before it returns to the host; the global step advances by
            as many.
        ipu_options: the `IPUConfig` that the estimator applies when it builds a model. Without it the process's
            configuration is used; if there is none, one IPU.
        num_replicas: how many copies of the model run, each on batches of its own.
        num_shards: IPUs that one copy of the model lies on.
        ordinal: k of `/device:IPU:k`.
        prefetch_depth: that of the infeed.

    Raises:
        ValueError: if the device does not have `num_replicas * num_shards` IPUs, or `iterations_per_loop` is below 1.
        TypeError: if `ipu_options` is no `IPUConfig`.

    Example:
        >>> IPURunConfig(iterations_per_loop=10).num_replicas
        1
    """

    def __new__(
        cls,
        iterations_per_loop: int = 1,
        ipu_options: IPUConfig | None = None,
        num_replicas: int = 1,
        num_shards: int = 1,
        ordinal: int = 0,
        prefetch_depth: int | None = None,
    ) -> IPURunConfig:
        if checked_integer("iterations_per_loop", iterations_per_loop) < 1:
            raise ValueError(f"iterations_per_loop must be at least 1. Received: {iterations_per_loop}.")
        num_replicas = checked_count("num_replicas", num_replicas)
        num_shards = checked_count("num_shards", num_shards)
        ordinal = checked_count("ordinal", ordinal, least=0)
        if prefetch_depth is not None:
            checked_prefetch_depth(prefetch_depth)
        wanted = num_replicas * num_shards
        if wanted > 1 and ipu_options is None:
            raise ValueError("IPU configuration requires more than one device, but `ipu_options` is None")
        there = 1 if ipu_options is None else _configured(ipu_options, ordinal, wanted)
        if wanted != there:
            raise ValueError(
                f"`IPURunConfig` configured with {wanted} devices ({num_replicas} replicas times {num_shards} shards), "
                f"but `IpuOptions` configured with {there} devices"
            )
        return super().__new__(cls, iterations_per_loop, ipu_options, num_replicas, num_shards, ordinal, prefetch_depth)


@dataclasses.dataclass(frozen=True)
class RunConfig(run_config.RunConfig):
    """A `tf.estimator.RunConfig` with an `IPURunConfig`.

    Args:
        ipu_run_config: for the device; by default one IPU, one iteration a loop.
        master: the address of a remote session; there is none.
        **kwargs: those of `tf.estimator.RunConfig`.

    Raises:
        EmulationError: for the address of a remote session.
    """

    ipu_run_config: IPURunConfig = dataclasses.field(default_factory=IPURunConfig)

    def __init__(self, ipu_run_config: IPURunConfig | None = None, master: str | None = None, **kwargs: Any) -> None:
        if master:
            raise EmulationError(
                f"RunConfig(master={master!r}) asks for a session in another process. The emulated IPU belongs to this "
                "process: leave `master` out."
            )
        super().__init__(**kwargs)
        object.__setattr__(self, "ipu_run_config", ipu_run_config or IPURunConfig())


def _configured(options: Any, ordinal: int, wanted: int) -> int:
    """Returns the number of IPUs of the device by its options; `wanted` if it depends on the machine's table of ids."""
    if not isinstance(options, IPUConfig):
        raise TypeError("ipu_options must be an IPUConfig instance.")
    devices = options._create_protobuf().device_config
    if ordinal >= len(devices):
        raise ValueError(
            f"Only {len(devices)} device(s) available to choose from. You tried to pick a device at ordinal {ordinal}"
        )
    return int(devices[ordinal].auto_count or wanted)
