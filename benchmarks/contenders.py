"""Who is measured."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

from benchmarks.workload import Workload

OURS = "ipu"


@dataclasses.dataclass(frozen=True)
class Contender:
    """A way to train a workload.

    Attributes:
        name: what the command line calls it.
        title: what the table calls it.
        family: contenders of one family are settings of the same thing: the best of them counts.
        maker: module and function that make its run.
        backend: Keras's backend in its process.
        arguments: of the maker, beside the workload; "epoch" as a value stands for the steps of a round.
        scanned: whether a round of it has the workload's `scan_steps`.
    """

    name: str
    title: str
    family: str
    maker: tuple[str, str]
    backend: str = "tensorflow"
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    scanned: bool = False

    def steps(self, workload: Workload) -> int:
        """Training steps of a round."""
        return workload.scan_steps if self.scanned else workload.steps

    def prepare(self, workload: Workload) -> Callable[[], float]:
        """The run of a round, in the process of this contender."""
        module, function = self.maker
        arguments = {k: workload.steps if v == "epoch" else v for k, v in self.arguments.items()}
        run: Callable[[], float] = getattr(importlib.import_module(module), function)(workload, **arguments)
        return run


_STOCK = ("benchmarks.keras_runs", "stock")
_TF = "stock Keras on TensorFlow"
_EPOCH = "steps_per_execution=epoch"

CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender(OURS, f"this project, {_EPOCH}", "this project", ("benchmarks.keras_runs", "on_ipu")),
        Contender("tf", f"{_TF}, as written", _TF, _STOCK),
        Contender("tf-jit", f"{_TF}, jit_compile=True", _TF, _STOCK, arguments={"jit_compile": True}),
        Contender("tf-nojit", f"{_TF}, jit_compile=False", _TF, _STOCK, arguments={"jit_compile": False}),
        Contender("tf-loop", f"{_TF}, {_EPOCH}", _TF, _STOCK, arguments={"steps_per_execution": "epoch"}),
        Contender("keras-jax", "stock Keras on JAX, as written", "stock Keras on JAX", _STOCK, backend="jax"),
        Contender(
            "jax", "hand-written JAX, jitted step", "hand-written JAX step", ("benchmarks.jax_runs", "python_loop")
        ),
        Contender(
            "jax-scan",
            "hand-written JAX, lax.scan",
            "hand-written JAX scan",
            ("benchmarks.jax_runs", "scan"),
            scanned=True,
        ),
    )
}
