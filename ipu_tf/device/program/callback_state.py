"""`CallbackState`: what the host callbacks of a program have of its present execution."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any


@dataclasses.dataclass
class CallbackState:
    """State of an execution that a program's host callbacks reach.

    A callback is part of the compiled program, which knows no execution: XLA calls it in threads of its own.

    Attributes:
        alone: held by the execution. Those of one program take turns, since its callbacks cannot tell them apart.
        queues: the queues that the execution was given; None outside of one.
        errors: what callbacks raised in it.
    """

    alone: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    queues: Any = None
    errors: list[BaseException] = dataclasses.field(default_factory=list)
