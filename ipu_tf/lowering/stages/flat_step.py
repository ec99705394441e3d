"""Flattens a loop body into a list of ops: calls and the update branch inlined, copies removed.

Values are numbers. A value of the loop's body that an update changes has two: what it is in an iteration without an
update, and what it is in one with.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from ipu_tf.lowering.importer.interpreter import TERMINATORS
from ipu_tf.lowering.stablehlo.module import Module, callee, custom_call_target
from ipu_tf.lowering.stablehlo.needed_hidden_state import UPDATE_DUE
from ipu_tf.lowering.stablehlo.op import array_types
from ipu_tf.lowering.stablehlo.partition import is_identity, names_read


class CannotCutPipelineError(Exception):
    """Raised with the reason if a pipeline cannot be cut into stages."""


@dataclasses.dataclass(frozen=True)
class FlatOp:
    """Op of a flat loop body.

    Attributes:
        operation: the MLIR operation.
        names: MLIR names that it and its regions read from outside.
        operands: the value of each of them.
        results: the values it gives.
        on_update: whether it runs only in iterations with an update.
        after_update: whether it reads something that the update changes in the same iteration.
    """

    operation: Any
    names: tuple[Any, ...]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    on_update: bool = False
    after_update: bool = False


@dataclasses.dataclass(frozen=True)
class FlatLoopBody:
    """Loop body as a flat list of ops.

    Attributes:
        nodes: its operations, in order.
        types: shape and dtype of each value, by its number; None for a token.
        arguments: the values of the body's arguments.
        outer: MLIR names that the body reads from around the loop, and their values.
        results: the values that the body gives in an iteration without an update.
        updated: those in one with.
    """

    nodes: tuple[FlatOp, ...]
    types: tuple[jax.ShapeDtypeStruct | None, ...]
    arguments: tuple[int, ...]
    outer: tuple[tuple[Any, int], ...]
    results: tuple[int, ...]
    updated: tuple[int, ...]


def flat_step(module: Module, block: Any) -> FlatLoopBody:
    """Flattens a loop's body, or a step function that runs in a loop."""
    return _Flattener(module).flat(block)


@dataclasses.dataclass(frozen=True)
class _Value:
    plain: int
    updated: int


_Scope = dict[Any, _Value]


class _Flattener:
    """Flattens a block: numbers its values and inlines calls."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._nodes: list[FlatOp] = []
        self._types: list[jax.ShapeDtypeStruct | None] = []
        self._due: set[int] = set()
        self._outer: dict[Any, int] = {}

    def flat(self, block: Any) -> FlatLoopBody:
        scope = {name: self._new(name) for name in block.arguments}
        arguments = tuple(value.plain for value in scope.values())
        returned = self._run(block, scope, on_update=False)
        return FlatLoopBody(
            tuple(self._nodes),
            tuple(self._types),
            arguments,
            tuple(self._outer.items()),
            tuple(value.plain for value in returned),
            tuple(value.updated for value in returned),
        )

    def _new(self, name: Any) -> _Value:
        text = str(name.type)
        self._types.append(array_types(text)[0] if text.startswith("tensor") else None)
        return _Value(len(self._types) - 1, len(self._types) - 1)

    def _read(self, name: Any, scope: _Scope) -> _Value:
        if name not in scope:
            scope[name] = self._new(name)
            self._outer[name] = scope[name].plain
        return scope[name]

    def _run(self, block: Any, scope: _Scope, on_update: bool) -> list[_Value]:
        for operation in block.operations:
            operation = operation.operation
            if operation.name in TERMINATORS:
                return [self._read(name, scope) for name in operation.operands]
            self._add(operation, scope, on_update)
        raise ValueError(f"A block of `{self._module.name}` does not return.")

    def _add(self, operation: Any, scope: _Scope, on_update: bool) -> None:
        results = list(operation.results)
        if is_identity(operation):
            scope[results[0]] = self._read(operation.operands[0], scope)
        elif operation.name == "func.call":
            inner = self._module.functions[callee(operation)]
            given = [self._read(name, scope) for name in operation.operands]
            returned = self._run(inner, dict(zip(inner.arguments, given, strict=True)), on_update)
            scope.update(zip(results, returned, strict=True))
        elif operation.name == "stablehlo.if" and self._read(operation.operands[0], scope).plain in self._due:
            self._open_update(operation, scope)
        else:
            self._node(operation, scope, on_update)

    def _node(self, operation: Any, scope: _Scope, on_update: bool) -> None:
        names = tuple(dict.fromkeys(names_read(operation)))
        values = [self._read(name, scope) for name in names]
        made = {name: self._new(name) for name in operation.results}
        node = FlatOp(
            operation,
            names,
            tuple(value.updated if on_update else value.plain for value in values),
            tuple(value.plain for value in made.values()),
            on_update,
            not on_update and any(value.plain != value.updated for value in values),
        )
        if custom_call_target(operation) == UPDATE_DUE:
            self._due.update(node.results)
        self._nodes.append(node)
        scope.update(made)

    def _open_update(self, branch: Any, scope: _Scope) -> None:
        due, otherwise = (region.blocks[0] for region in branch.regions)
        updated = self._run(due, scope, on_update=True)
        plain = self._run(otherwise, scope, on_update=False)
        for name, without, with_update in zip(branch.results, plain, updated, strict=True):
            scope[name] = _Value(without.plain, with_update.updated)
