"""Private API of JAX and jaxlib that this package uses.

If JAX moves one of these, `tests/project/test_private_api.py` names it.
"""

from __future__ import annotations

from typing import Any

from jax._src.interpreters.mlir import make_ir_context
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

__all__ = ["MLIRError", "ir", "older_artifact", "parse_module", "stablehlo"]


MLIRError = ir.MLIRError


def parse_module(text_or_bytecode: str | bytes) -> Any:
    """Parses an MLIR module of the StableHLO dialect from text or bytecode.

    Ops of dialects jaxlib does not register (`mhlo.copy`) are kept as they are.
    """
    context = make_ir_context()
    context.allow_unregistered_dialects = True
    with context:
        return ir.Module.parse(text_or_bytecode)


def older_artifact(artifact: bytes) -> bytes:
    """Converts a portable StableHLO module to a version readable by software up to twelve weeks older than JAX.

    JAX itself looks back four weeks, which is less than what lies between it and the TensorFlow of its day.

    Args:
        artifact: as `jax.export` makes it.
    """
    requirement = stablehlo.StablehloCompatibilityRequirement.WEEK_12
    with make_ir_context() as context:
        module = stablehlo.deserialize_portable_artifact(context, artifact)
        version = stablehlo.get_version_from_compatibility_requirement(requirement)
        return bytes(stablehlo.serialize_portable_artifact(module, version))
