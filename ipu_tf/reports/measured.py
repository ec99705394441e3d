"""`Measured`: when a program was traced, compiled and executed on this machine, as frozen data."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Iterator

import jax

from ipu_tf.device.run.run_record import RunRecord, Span


@dataclasses.dataclass(frozen=True)
class Measured:
    """Times that were measured while the program was used. They are of this machine, and say nothing of an IPU.

    Attributes:
        machine: the system, its processor, and what JAX runs on.
        front_end_seconds: tracing and lowering of a Keras step by TensorFlow or JAX; 0 for other programs.
        compiled: what JAX traced, lowered and compiled, in order.
        loaded: whether what was compiled last came from the executable cache.
        executions: how many executions ended.
        seconds: how long they took together, compilations in them included.
        last_executions: the last of them, at most 1,000.
        failed: the error that ended the program's compilation; "" if it was compiled.
    """

    machine: str
    front_end_seconds: float
    compiled: tuple[Span, ...]
    loaded: bool
    executions: int
    seconds: float
    last_executions: tuple[Span, ...]
    failed: str = ""

    def seconds_of(self, what: str) -> float:
        """Returns how long JAX took to "trace", "lower" or "compile"."""
        return sum(span.seconds for span in self.compiled if span.what == what)

    @property
    def steps(self) -> int:
        """Loop iterations of the last executions."""
        return sum(span.steps for span in self.last_executions)


def measured(record: RunRecord, failed: str = "") -> Measured:
    """Returns the times that were recorded so far, and what ended the compilation: then what was done of that alone."""
    since = record.failed_from if failed and record.failed_from is not None else 0.0
    return Measured(
        machine=" ".join(_machine()),
        front_end_seconds=record.front_end_seconds,
        compiled=tuple(span for span in record.compiled if span.start >= since),
        loaded=record.loaded,
        executions=record.executions,
        seconds=record.seconds,
        last_executions=record.last,
        failed=failed,
    )


def _machine() -> Iterator[str]:
    device = jax.devices()[0]
    yield f"{platform.system()} {platform.machine()}, JAX {jax.__version__} on {device.platform}"
    if device.device_kind != device.platform:
        yield f"({device.device_kind})"
