"""Records which convolutions a trace computes, for reports; their operations then have a name scope each."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from ipu_tf._state.context import context_value
from ipu_tf.device.convolution.problem import CanonicalConvolution

Recorded = Mapping[str, CanonicalConvolution]
"""Convolutions by the name scope of their operation."""

_record: contextvars.ContextVar[dict[str, CanonicalConvolution] | None] = contextvars.ContextVar(
    "recorded convolutions", default=None
)


@contextlib.contextmanager
def record_convolutions() -> Iterator[Recorded]:
    """Context manager that records the convolutions that are traced in it. Programs that run are traced without."""
    found: dict[str, CanonicalConvolution] = {}
    with context_value(_record, found):
        yield found


def recorded(problem: CanonicalConvolution, plan: str) -> contextlib.AbstractContextManager[Any]:
    """Records a convolution that is computed by a plan; returns the name scope for it, or none."""
    found = _record.get()
    if found is None:
        return contextlib.nullcontext()
    scope = f"convolution {len(found)} by {plan}"
    found[scope] = problem
    return jax.named_scope(scope)
