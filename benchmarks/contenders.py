"""`Contender`: one way to run a workload, e.g. Keras on the emulated IPU, or JAX by hand."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

from benchmarks.workload import BY_HAND, KERAS_JAX, TENSORFLOW, Workload

PROJECT = "this project"
EPOCH = "epoch"


@dataclasses.dataclass(frozen=True)
class Contender:
    """Way to run a workload, in a process of its own.

    Attributes:
        name: what the command line calls it.
        family: contenders of one family are settings of the same thing: the best of them counts.
        settings: what the table calls it, beside the family.
        maker: module and function that make its run.
        backend: Keras's backend in its process.
        arguments: of the maker, beside the workload and the task; EPOCH as a value stands for the steps of a round.
        scanned: whether a round of it has the workload's `scan_steps`.
    """

    name: str
    family: str
    settings: str
    maker: tuple[str, str]
    backend: str = "tensorflow"
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    scanned: bool = False

    @property
    def title(self) -> str:
        """Title in the table."""
        return f"{self.family}, {self.settings}"

    def steps(self, workload: Workload) -> int:
        """Number of steps of a round."""
        return workload.scan_steps if self.scanned else workload.steps

    def prepare(self, workload: Workload, task: str) -> Callable[[], float]:
        """Returns the function that runs a round, in the process of this contender.

        Args:
            workload: what to go through.
            task: "train", "evaluate" or "predict".
        """
        module, function = self.maker
        arguments = {k: workload.steps if v == EPOCH else v for k, v in self.arguments.items()}
        run: Callable[[], float] = getattr(importlib.import_module(module), function)(workload, task=task, **arguments)
        return run


_IPU = ("benchmarks.keras_runs", "on_ipu")
_STOCK = ("benchmarks.keras_runs", "stock")
_AS_WRITTEN = "as written"
_ONE = "steps_per_execution=epoch"
_LOOP = {"steps_per_execution": EPOCH}

CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("ipu", PROJECT, _ONE, _IPU, arguments=_LOOP),
        Contender("ipu-written", PROJECT, _AS_WRITTEN, _IPU, arguments={"steps_per_execution": 1}),
        Contender("ipu-8", PROJECT, "accumulation 8", _IPU, arguments={**_LOOP, "micro_batches": 8}),
        Contender(
            "ipu-8-4", PROJECT, "accumulation 8, 4 stages", _IPU, arguments={**_LOOP, "micro_batches": 8, "stages": 4}
        ),
        Contender("tf", TENSORFLOW, _AS_WRITTEN, _STOCK),
        Contender("tf-jit", TENSORFLOW, "jit_compile=True", _STOCK, arguments={"jit_compile": True}),
        Contender("tf-nojit", TENSORFLOW, "jit_compile=False", _STOCK, arguments={"jit_compile": False}),
        Contender("tf-loop", TENSORFLOW, _ONE, _STOCK, arguments=_LOOP),
        Contender("keras-jax", KERAS_JAX, _AS_WRITTEN, _STOCK, backend="jax"),
        Contender("keras-jax-loop", KERAS_JAX, _ONE, _STOCK, backend="jax", arguments=_LOOP),
        Contender("jax", BY_HAND, "jitted step", ("benchmarks.jax_runs", "python_loop")),
        Contender("jax-scan", BY_HAND, "lax.scan", ("benchmarks.jax_runs", "scan"), scanned=True),
    )
}
