"""Finds the ops of a TensorFlow graph inside `scopes.stochastic_rounding`.

Most ops carry that down to StableHLO themselves; those that TensorFlow lowers by MLIR (`tf.exp`, `tf.nn.softmax`) keep
only their names, by which they are found here.
"""

from __future__ import annotations

import collections
import itertools
from typing import Any

from ipu_tf.lowering.tensorflow import tf_graphs

_ATTRIBUTE = "_XlaFrontendAttributes"
OVERRIDE = "STOCHASTIC_ROUNDING"
"""The name of the wish among an op's frontend attributes."""
OVERRIDES = {"THREESTATE_ON": True, "THREESTATE_OFF": False}
"""Values of the attribute; any other counts as none."""


def rounding_overrides(graph: Any) -> dict[str, bool]:
    """Returns whether ops round stochastically, by name, for ops inside of a rounding scope.

    A name that functions of the graph use for several ops, with different wishes, is left out.

    Args:
        graph: a `tf.Graph`.
    """
    definition = graph.as_graph_def()
    wishes: dict[str, set[bool | None]] = collections.defaultdict(set)
    functions = (function.node_def for function in definition.library.function)
    for node in itertools.chain(definition.node, *functions):
        wishes[node.name].add(_wish(node))
    return {name: wish for name, [wish, *others] in wishes.items() if wish is not None and not others}


def _wish(node: Any) -> bool | None:
    if _ATTRIBUTE not in node.attr:
        return None
    return OVERRIDES.get(tf_graphs.string_map(node.attr[_ATTRIBUTE].s).get(OVERRIDE, ""))
