"""Builds the contents of an executable file from a traced function, with variables frozen or as inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from ipu_tf.device.files.executable_file import contents
from ipu_tf.device.program.program import Program
from ipu_tf.lowering.importer.true_checks import remove_operand_checks
from ipu_tf.lowering.programs.build import build_program
from ipu_tf.lowering.programs.program_target import Target
from ipu_tf.lowering.tensorflow.trace import Lowered


@dataclasses.dataclass(frozen=True)
class Parameter:
    """Parameter of a lowered function in a file: an input or a frozen value.

    Attributes:
        name: in the file's signature.
        value: what it always is, and the file holds; None where whoever starts the program gives it.
    """

    name: str
    value: np.ndarray | None = None


def program_contents(lowered: Lowered, parameters: Sequence[Parameter], target: Target, outputs: int) -> bytes:
    """Builds the file contents of a lowered function.

    Args:
        lowered: the function. If it has no outputs of its own, its first result is a dummy, which is left out.
        parameters: what each parameter becomes.
        target: where it would run.
        outputs: how many outputs it has of its own.

    Raises:
        ExportError: if it cannot be kept in a file.
        tf.errors.InvalidArgumentError: if it has tensors of a dtype that the device has not.
    """
    _check_dtypes(lowered)
    remove_operand_checks(lowered.module)
    program = build_program(lowered.module, target.replicas, target.numerics)
    if not outputs:
        program = _without_first_result(program)
    weights: Mapping[int, np.ndarray] = {i: p.value for i, p in enumerate(parameters) if p.value is not None}
    return contents(program, weights, {i: p.name for i, p in enumerate(parameters)})


def _check_dtypes(lowered: Lowered) -> None:
    doubles = [t for t in (*lowered.module.parameters, *lowered.module.results) if t.dtype == np.float64]
    if doubles:
        raise tf.errors.InvalidArgumentError(
            None,
            None,
            f"Detected unsupported operations when trying to compile graph {lowered.module.name}: the device has no "
            "float64. Use tensors of float32.",
        )


def _without_first_result(program: Program) -> Program:
    aliases = {result - 1: parameter for result, parameter in program.aliases.items()}
    return dataclasses.replace(program, results=program.results[1:], aliases=aliases)
