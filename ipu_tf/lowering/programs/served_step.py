"""Freezes a function's variables, for export to stock TensorFlow without this package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import tensorflow as tf

from ipu_tf.lowering.importer.true_checks import remove_operand_checks
from ipu_tf.lowering.programs.build import program_function
from ipu_tf.lowering.programs.exported_function import exported_function
from ipu_tf.lowering.stablehlo.check_markers import checks_of
from ipu_tf.lowering.stablehlo.errors import LoweringError
from ipu_tf.lowering.tensorflow import tf_private, tf_values
from ipu_tf.lowering.tensorflow.trace import Lowered, lower


def served_step(step: Callable[..., Any], signature: Sequence[tf.TensorSpec]) -> Callable[..., list[tf.Tensor]]:
    """Returns the function for inputs of this signature; it returns a flat list of tensors.

    Where the function uses ops that only the device knows, it becomes one op that holds the device's StableHLO, which
    TensorFlow's own XLA compiles.

    Args:
        step: takes tensors and gives tensors.
        signature: what it takes.

    Raises:
        LoweringError: if it uses ops that only the device knows beside ops that the device has not.
    """
    function = tf.function(step, input_signature=list(signature))
    concrete = function.get_concrete_function()
    if tf_private.has_custom_calls(concrete):
        return _compiled(concrete)
    frozen = tf_private.frozen(concrete)

    def call(*inputs: tf.Tensor) -> list[tf.Tensor]:
        return list(tf.nest.flatten(frozen(*inputs)))

    return call


def _compiled(concrete: Any) -> Callable[..., list[tf.Tensor]]:
    """Returns the function as one op that holds its StableHLO."""
    lowered = lower(concrete)
    with jax.enable_x64(True):
        held = [tf_values.tensor_memory(tf.convert_to_tensor(capture)) for capture in lowered.captures]
        remove_operand_checks(lowered.module)
        function = program_function(lowered.module)
        _check_asserts_nothing(lowered)
        return exported_function(
            lambda *inputs: function([*inputs, *held], {})[0][: lowered.outputs],
            lowered.module.parameters[: len(lowered.inputs)],
        )


def _check_asserts_nothing(lowered: Lowered) -> None:
    origins = [f"`{check.origin}`" for check in checks_of(lowered.module).values()]
    if origins:
        raise LoweringError(
            f"`{lowered.module.name}` asserts ({', '.join(origins)}) beside ops that only the device knows. One op of "
            "a SavedModel cannot raise what an assertion says: export the function without the assertions."
        )
