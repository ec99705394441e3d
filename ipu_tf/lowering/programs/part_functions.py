"""Traces the parts of a program as JAX functions: straight-line code, and bodies and conditions of loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ipu_tf.device.program.program import Arrays, Elements, Hidden, Types
from ipu_tf.lowering.importer.interpreter import Interpreter
from ipu_tf.lowering.importer.part_feeds import PartFeeds
from ipu_tf.lowering.stablehlo.module import Module
from ipu_tf.lowering.stablehlo.needed_hidden_state import ENQUEUED
from ipu_tf.lowering.stablehlo.partition import LoopPiece, Rebind, StraightLinePiece


def straight_line_function(
    module: Module, piece: StraightLinePiece, outfeeds: tuple[str, ...], replicas: int
) -> Callable[[Arrays, Hidden, Elements], tuple[Arrays, Hidden, Elements]]:
    """Returns `StraightLinePart.run` of straight-line code.

    Args:
        module: where the code is.
        piece: the code.
        outfeeds: names of its outfeeds.
        replicas: how many replicas run it.
    """

    def run(live: Arrays, hidden: Hidden, elements: Elements) -> tuple[Arrays, Hidden, Elements]:
        feeds = PartFeeds(elements, outfeeds, replicas)
        interpreter = Interpreter(module, feeds, hidden, replicas)
        interpreter.bind(piece.live_in, live)
        for step in piece.steps:
            if isinstance(step, Rebind):
                interpreter.bind(step.targets, interpreter.read(step.sources))
            else:
                interpreter.run_operation(step.operation)
        outputs = tuple(jnp.asarray(value) for value in interpreter.read(piece.live_out))
        return outputs, interpreter.hidden, feeds.enqueued

    return run


@dataclasses.dataclass(frozen=True, eq=False)
class LoopFunctions:
    """Body and condition of a `stablehlo.while` as JAX functions.

    Attributes:
        module: where the loop is.
        piece: the loop.
        constants: names of the values that it reads and does not carry.
        outfeeds: element types of its outfeeds.
        replicas: how many replicas run it.
    """

    module: Module
    piece: LoopPiece
    constants: tuple[Any, ...]
    outfeeds: Mapping[str, Types]
    replicas: int

    def step(
        self, carry: Arrays, values: Arrays, hidden: Hidden, elements: Elements
    ) -> tuple[Arrays, Hidden, Elements]:
        """`LoopPart.step`."""
        feeds = PartFeeds(elements, tuple(self.outfeeds), self.replicas)
        running = self._interpreter(feeds, hidden | self._nothing_enqueued(), values)
        results = running.run_block(self.piece.operation.regions[1].blocks[0], carry)
        outputs = tuple(jnp.asarray(value) for value in results)
        enqueued: dict[str, Any] = {name: running.hidden.pop(ENQUEUED + name) for name in self.piece.sometimes}
        return outputs, running.hidden, feeds.enqueued | enqueued

    def goes_on(self, carry: Arrays, values: Arrays) -> jax.Array:
        """`LoopPart.goes_on`."""
        running = self._interpreter(PartFeeds({}, (), self.replicas), {}, values)
        (more,) = running.run_block(self.piece.operation.regions[0].blocks[0], carry)
        return jnp.reshape(more, ())

    def _interpreter(self, feeds: PartFeeds, hidden: Hidden, values: Arrays) -> Interpreter:
        made = Interpreter(self.module, feeds, hidden, self.replicas)
        made.bind(self.constants, values)
        return made

    def _nothing_enqueued(self) -> dict[str, Any]:
        """Returns the initial flags and elements of the queues that are used in branches: nothing enqueued."""
        types = {name: self.outfeeds[name] for name in self.piece.sometimes}
        zeros = {name: tuple(jnp.zeros(t.shape, t.dtype) for t in element) for name, element in types.items()}
        return {ENQUEUED + name: (jnp.bool_(False), *element) for name, element in zeros.items()}
