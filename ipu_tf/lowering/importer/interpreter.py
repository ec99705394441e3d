"""Walks a StableHLO module and traces it into JAX, rule by rule."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import jax

from ipu_tf.lowering.importer.rules import RULES
from ipu_tf.lowering.stablehlo.errors import placed
from ipu_tf.lowering.stablehlo.module import Module
from ipu_tf.lowering.stablehlo.op import Op

TERMINATORS = ("func.return", "stablehlo.return", "mhlo.return")


class Feeds(Protocol):
    """Where the infeed and outfeed markers of a program lead while it is traced."""

    def dequeue(
        self, queue: str, types: Sequence[jax.ShapeDtypeStruct], given: jax.Array | None = None
    ) -> list[jax.Array]:
        """The next element of an infeed; zeros where it is not `given`."""
        ...

    def enqueue(self, queue: str, values: Sequence[jax.Array], given: jax.Array | None = None) -> None:
        """One more row for an outfeed, where it is `given`."""
        ...


class Interpreter:
    """Traces blocks of one module; an `Importer` for the rules.

    Args:
        module: the module.
        feeds: what infeed and outfeed markers do.
        hidden: state that the program threads through its control flow without naming it, e.g. the `seed` of
            stateful random ops. Rules read and replace its entries.
        replicas: how many replicas the program is traced for.

    Attributes:
        active: whether the replica takes part in what is traced, `bool[]`; None where all do.
    """

    def __init__(
        self, module: Module, feeds: Feeds, hidden: dict[str, jax.Array] | None = None, replicas: int = 1
    ) -> None:
        self.module = module
        self.feeds = feeds
        self.hidden: dict[str, jax.Array] = dict(hidden or {})
        self.replicas = replicas
        self.arithmetic = module.arithmetic
        self.active: jax.Array | None = None
        self._values: dict[Any, Any] = {}

    def run_block(self, block: Any, arguments: Sequence[Any]) -> list[Any]:
        """The results of a block, traced with these arguments; sees the values of enclosing blocks."""
        self.bind(block.arguments, arguments)
        for operation in block.operations:
            operation = operation.operation
            if operation.name in TERMINATORS:
                return self.read(operation.operands)
            self.run_operation(operation)
        raise ValueError(f"A block of `{self.module.name}` does not return.")

    def run_function(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """The results of a function of the module, by its name."""
        return self.run_block(self.module.functions[name], arguments)

    def run_operation(self, operation: Any) -> None:
        """Traces one operation and keeps its results.

        Raises:
            UnsupportedOpsError: if its rule cannot do what is asked. Any error names the user's line.
        """
        rule, op, operands = RULES[operation.name], Op(operation), self.read(operation.operands)
        try:
            results = rule(self, op, *operands) if self.arithmetic is None else self._rounded(rule, op, operands)
        except Exception as error:
            at_line = placed(error, self.module.name, op.name, self.module.place_of(op.origin))
            if at_line is error:
                raise
            raise at_line from error
        if not isinstance(results, (list, tuple)):
            results = (results,)
        self.bind(operation.results, results)

    def _rounded(self, rule: Any, op: Op, operands: Sequence[Any]) -> Any:
        assert self.arithmetic is not None
        return self.arithmetic.run(self, rule, op, operands)

    def bind(self, names: Sequence[Any], values: Sequence[Any]) -> None:
        """Gives values to SSA names."""
        self._values.update(zip(names, values, strict=True))

    def read(self, names: Sequence[Any]) -> list[Any]:
        """The values of SSA names."""
        return [self._values[name] for name in names]

    @contextlib.contextmanager
    def plain(self) -> Iterator[None]:
        """Within it, operations compute as JAX does, whatever the module's arithmetic: in the regions of reductions."""
        outer, self.arithmetic = self.arithmetic, None
        try:
            yield
        finally:
            self.arithmetic = outer

    @contextlib.contextmanager
    def only_where(self, active: jax.Array) -> Iterator[None]:
        """Within it, only replicas take part of which this holds, `bool[]`."""
        outer, self.active = self.active, active
        try:
            yield
        finally:
            self.active = outer

    @contextlib.contextmanager
    def branch(self, hidden: dict[str, jax.Array]) -> Iterator[dict[str, jax.Array]]:
        """Within it, hidden state starts as given; the dictionary it yields holds it at the end."""
        outer, self.hidden = self.hidden, dict(hidden)
        try:
            yield self.hidden
        finally:
            self.hidden = outer
