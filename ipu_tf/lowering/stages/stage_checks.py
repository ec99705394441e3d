"""Checks whether a step can be cut into pipeline stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ipu_tf.device.memory.hidden_state import SEED, SHARED_SEED
from ipu_tf.device.numerics.exceptions import EXCEPTIONS
from ipu_tf.lowering.stablehlo.check_markers import CHECK
from ipu_tf.lowering.stablehlo.module import INFEED, OUTFEED, Module, configuration, custom_call_target, walk
from ipu_tf.lowering.stablehlo.needed_hidden_state import ACCUMULATE, UPDATE_DUE, types_in
from ipu_tf.lowering.stablehlo.op import Op
from ipu_tf.lowering.stablehlo.stage_markers import StageMarker
from ipu_tf.lowering.stages.flat_step import CannotCutPipelineError, FlatLoopBody, FlatOp
from ipu_tf.lowering.tensorflow.host_calls import HOST_CALLS

EFFECTS = frozenset({INFEED, OUTFEED, *HOST_CALLS})
"""Calls that happen whether or not anything uses what they give."""


def check_cuttable(module: Module, step: FlatLoopBody, live: Sequence[FlatOp], mark: StageMarker) -> None:
    """Checks that a step can be cut into stages.

    Raises:
        CannotCutPipelineError: saying what does.
    """
    targets = ((custom_call_target(node.operation), node.operation) for node in step.nodes)
    counts = {configuration(o).get("count") for target, o in targets if target in (ACCUMULATE, UPDATE_DUE)}
    if counts - {mark.count} or (mark.training and not mark.count):
        raise CannotCutPipelineError("the number of micro-batches to an update is known only when the program runs")
    for node in step.nodes:
        if any(custom_call_target(operation) == CHECK for operation in inside(module, node)):
            where = origin(module, node)
            raise CannotCutPipelineError(f"it has an assertion ({where}), which is one state of the whole program")
    for node in live:
        reason = _obstacle(module, node)
        if reason is not None:
            raise CannotCutPipelineError(reason)


def _obstacle(module: Module, node: FlatOp) -> str | None:
    """Returns the reason why an operation cannot be on one stage; None if it can."""
    if node.after_update:
        return f"{origin(module, node)} reads what the update changes in the same micro-batch"
    operation, uses = node.operation, types_in(inside(module, node), module)
    own_numbers = operation.name == "stablehlo.rng" or operation.regions
    if {EXCEPTIONS, SHARED_SEED} & uses.keys() or (SEED in uses and not own_numbers):
        return (
            "floating-point settings round stochastically, or look for exceptions, which is one state of the whole "
            f"program ({origin(module, node)})"
        )
    if operation.regions and uses:
        return f"{origin(module, node)} is a loop or branch with random numbers or state of its own"
    if node.on_update and uses:
        return f"the update uses random numbers or a counter ({origin(module, node)})"
    if operation.regions and any(custom_call_target(o) in EFFECTS for o in inside(module, node)):
        return f"a loop or branch inside of a stage ({origin(module, node)}) uses a queue or the host"
    return None


def inside(module: Module, node: FlatOp) -> Iterable[Any]:
    """Yields the operation of a node and all operations in its regions."""
    yield node.operation
    for region in node.operation.regions:
        for block in region.blocks:
            yield from walk(block, module.functions)


def origin(module: Module, node: FlatOp) -> str:
    """Describes the origin of an operation for messages: TensorFlow's name and the user's source line."""
    location = module.location_of(Op(node.operation).origin)
    line = next((f", {line.file}, line {line.line}" for line in location.lines), "")
    return f"`{location.name}`{line}"
