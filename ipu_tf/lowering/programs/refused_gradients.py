"""`without_gradients`: results of a program in a graph, whose gradients are an error in place of none.

The op that runs the program is Python to TensorFlow: without this its gradient would be None, and a sum with another
term would have that of the other term alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ipu_tf.lowering.stablehlo.errors import LoweringError
from ipu_tf.lowering.tensorflow import tf_graphs
from ipu_tf.lowering.tensorflow.host_op import host_op


def without_gradients(results: Sequence[tf.Tensor], sources: Sequence[tf.Tensor], name: str) -> list[tf.Tensor]:
    """Returns a program's results; what computes their gradients in the graph raises an error when it runs.

    TensorFlow makes a function's gradients for all of its results, whichever a tape asks for: the others get zeros, of
    which the gradients are zeros.

    Args:
        results: of the program, tensors of the current graph.
        sources: what they were computed from, tensors of that graph.
        name: of the program.
    """
    made = [place for place, result in enumerate(results) if result.dtype.is_floating]
    given = [source for source in sources if source.dtype.is_floating]
    if not made or not given:
        return list(results)

    def gradients(*upstream: tf.Tensor | None) -> list[tf.Tensor | None]:
        asked = [tf.convert_to_tensor(each) for each in upstream[: len(made)] if each is not None]
        checked = host_op(_check_zeros, asked, [], f"{name}_gradient")
        with tf.device("/device:CPU:0"), tf.control_dependencies([checked.operation]):
            return [None] * len(made) + [tf.zeros_like(source) for source in given]

    with tf.device("/device:CPU:0"):
        passed = tf_graphs.with_gradient([*(results[place] for place in made), *given], gradients)
    of_places = dict(zip(made, passed, strict=False))
    return [of_places.get(place, result) for place, result in enumerate(results)]


def _check_zeros(*upstream: np.ndarray) -> None:
    """Raises an error if a gradient of the results is asked for."""
    if any(np.any(gradient) for gradient in upstream):
        raise LoweringError(
            "The gradient of the results of a program is asked for in a graph: a TensorFlow 1 session, or a "
            "`tf.function` that calls `strategy.run` or `ipu_compiler.compile`. Put the tape, or `tf.gradients`, into "
            "the function that the device runs, and return the gradients. Gradients of a program that is run "
            "eagerly are computed."
        )
