"""The one place that reads the process environment.

Every variable the project understands has a function here; a test checks that nothing else asks `os.environ`.
"""

from __future__ import annotations

import os
import shlex

_DEFAULT_IPUS = 16


def ipu_count() -> int:
    """How many emulated IPUs this machine offers: `TF_IPU_COUNT`, by default 16.

    Raises:
        ValueError: if the variable is not a positive whole number.
    """
    text = os.environ.get("TF_IPU_COUNT", "").strip()
    if not text:
        return _DEFAULT_IPUS
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"TF_IPU_COUNT must be a positive whole number of IPUs. Received: {text!r}.")
    return int(text)


def poplar_flags() -> tuple[str, ...]:
    """The words of `TF_POPLAR_FLAGS`, split as a shell splits them; empty if it is not set."""
    return tuple(shlex.split(os.environ.get("TF_POPLAR_FLAGS", "")))


def use_ipu_model() -> bool:
    """Whether `TF_POPLAR_FLAGS` asks for the IPU model rather than an IPU; both are emulated alike here."""
    return any(flag in ("--use_ipu_model", "--use_ipu_model=true") for flag in poplar_flags())
