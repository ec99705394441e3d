"""Names of TensorFlow's ops on the JAX operations that they become, while a report is made."""

from __future__ import annotations

import contextlib
import contextvars
from typing import Any

import jax

from ipu_tf._state.context import context_value
from ipu_tf.lowering.stablehlo.op import Op

_NO_SCOPE: Any = contextlib.nullcontext()
_named: contextvars.ContextVar[bool] = contextvars.ContextVar("named operations", default=False)


def named_operations() -> contextlib.AbstractContextManager[None]:
    """Context manager: what is traced has the ops' names as JAX's name scopes. Programs that run do without."""
    return context_value(_named, True)


def scope_of(op: Op) -> Any:
    """Returns the name scope for what an op becomes; one without effect unless operations are named."""
    return jax.named_scope(op.origin) if _named.get() and op.origin != "unknown" else _NO_SCOPE
