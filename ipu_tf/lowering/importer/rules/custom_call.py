"""Rule for `stablehlo.custom_call`: dispatches by target."""

from __future__ import annotations

from typing import Any

from ipu_tf.lowering.importer.rules.registry import CUSTOM_CALLS, rule
from ipu_tf.lowering.stablehlo.module import custom_call_target
from ipu_tf.lowering.stablehlo.op import Op


@rule("stablehlo.custom_call")
def _custom_call(importer: Any, op: Op, *operands: Any) -> Any:
    results = CUSTOM_CALLS[custom_call_target(op.operation)](importer, op, *operands)
    if isinstance(results, (list, tuple)) and len(results) != len(op.operation.results):
        return [tuple(results)]  # several results come as one tuple
    return results
