"""Sessions for tests of TensorFlow 1 programs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

from ipu_tf import utils

_OFF = 2
"""`RewriterConfig.OFF`: its module is private."""


@contextlib.contextmanager
def ipu_session(disable_grappler_optimizers: Sequence[str] | None = None) -> Iterator[tf.compat.v1.Session]:
    """A session for the current graph. What the graph places on an IPU runs there, as in every session.

    Args:
        disable_grappler_optimizers: optimizers of TensorFlow's graphs to switch off, by their names in
            `RewriterConfig`, e.g. `["function_optimization"]`.

    Raises:
        ValueError: if there is no such optimizer.
    """
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    rewrites = config.graph_options.rewrite_options
    for name in disable_grappler_optimizers or ():
        if name not in rewrites.DESCRIPTOR.fields_by_name:
            known = ", ".join(sorted(rewrites.DESCRIPTOR.fields_by_name))
            raise ValueError(f"TensorFlow has no graph optimizer {name!r}. It has: {known}.")
        setattr(rewrites, name, _OFF)
    with tf.compat.v1.Session(config=config) as session:
        yield session


def move_variable_initialization_to_cpu() -> None:
    """Makes the variables of the current graph initialise on the host, see `ipu_tf.utils`."""
    utils.move_variable_initialization_to_cpu()
