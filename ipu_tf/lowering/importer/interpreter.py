"""`Interpreter`: traces a StableHLO module into JAX, op by op."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import jax

from ipu_tf.device.numerics.half import DrawnKey
from ipu_tf.device.op_scopes import scope_named
from ipu_tf.device.run.interrupts import check_interrupts
from ipu_tf.lowering.importer.rules import RULES
from ipu_tf.lowering.stablehlo.errors import located
from ipu_tf.lowering.stablehlo.module import Module
from ipu_tf.lowering.stablehlo.op import Op

TERMINATORS = ("func.return", "stablehlo.return", "mhlo.return")


class Feeds(Protocol):
    """Protocol of the infeeds and outfeeds of a program that is traced."""

    def dequeue(
        self, queue: str, types: Sequence[jax.ShapeDtypeStruct], given: jax.Array | None = None
    ) -> list[jax.Array]:
        """Dequeues the next element of an infeed; zeros where not `given`."""
        ...

    def enqueue(self, queue: str, values: Sequence[jax.Array], given: jax.Array | None = None) -> None:
        """Enqueues an element to an outfeed, where `given`."""
        ...


class Interpreter:
    """Traces blocks of one module; an `Importer` for the rules.

    Args:
        module: the module.
        feeds: what infeed and outfeed markers do.
        hidden: hidden state that the program's control flow carries, e.g. the `seed` of
            stateful random ops. Rules read and replace its entries.
        replicas: how many replicas the program is traced for.

    Attributes:
        active: whether the replica takes part in what is traced, `bool[]`; None where all do.
        draws: the last draw from each seed of `hidden`.
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
        self.draws: dict[str, DrawnKey] = {}
        self._values: dict[Any, Any] = {}

    def run_block(self, block: Any, arguments: Sequence[Any]) -> list[Any]:
        """Traces a block with these arguments, with access to values of enclosing blocks, and returns its results."""
        self.bind(block.arguments, arguments)
        for operation in block.operations:
            operation = operation.operation
            if operation.name in TERMINATORS:
                return self.read(operation.operands)
            self.run_operation(operation)
        raise ValueError(f"A block of `{self.module.name}` does not return.")

    def run_function(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """Traces a function of the module, by its name, and returns its results."""
        return self.run_block(self.module.functions[name], arguments)

    def run_operation(self, operation: Any) -> None:
        """Traces one op and stores its results.

        Raises:
            UnsupportedOpsError: if its rule does not support the op's attributes. Errors show the user's source line.
        """
        check_interrupts()
        rule, op, operands = RULES[operation.name], Op(operation), self.read(operation.operands)
        try:
            with scope_named("" if op.origin == "unknown" else op.origin):
                results = rule(self, op, *operands) if self.arithmetic is None else self._rounded(rule, op, operands)
        except Exception as error:
            at_line = located(error, self.module.name, op.name, self.module.location_of(op.origin))
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
        """Binds SSA names to values."""
        self._values.update(zip(names, values, strict=True))

    def read(self, names: Sequence[Any]) -> list[Any]:
        """Returns the values of SSA names."""
        return [self._values[name] for name in names]

    def has(self, names: Sequence[Any]) -> bool:
        """Returns whether all of these SSA names have values."""
        return all(name in self._values for name in names)

    @contextlib.contextmanager
    def plain(self) -> Iterator[None]:
        """Context manager: ops compute as in JAX, without the module's arithmetic; for regions of reductions."""
        outer, self.arithmetic = self.arithmetic, None
        try:
            yield
        finally:
            self.arithmetic = outer

    @contextlib.contextmanager
    def only_where(self, active: jax.Array) -> Iterator[None]:
        """Context manager: only replicas for which a `bool[]` holds take part."""
        outer, self.active = self.active, active
        try:
            yield
        finally:
            self.active = outer

    @contextlib.contextmanager
    def branch(self, hidden: dict[str, jax.Array]) -> Iterator[dict[str, jax.Array]]:
        """Context manager: sets the hidden state; yields a dictionary that holds it at the end."""
        outer, self.hidden = self.hidden, dict(hidden)
        try:
            yield self.hidden
        finally:
            self.hidden = outer
