"""Everything the project takes from JAX and jaxlib beyond their public interface.

If JAX moves one of these, `tests/test_private_api.py` names it.
"""

from __future__ import annotations

from typing import Any

from jax._src.interpreters.mlir import make_ir_context
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

__all__ = ["MLIRError", "ir", "parse_module", "stablehlo"]


MLIRError = ir.MLIRError


def parse_module(text_or_bytecode: str | bytes) -> Any:
    """An MLIR module of the StableHLO dialect, from its text or its bytecode.

    Ops of dialects jaxlib does not register (`mhlo.copy`) are kept as they are.
    """
    context = make_ir_context()
    context.allow_unregistered_dialects = True
    with context:
        return ir.Module.parse(text_or_bytecode)
