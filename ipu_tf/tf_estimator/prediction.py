"""Runs the prediction of an estimator in a monitored session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf.tf_estimator.built_model import BuiltModel
from ipu_tf.tf_estimator.run_config import RunConfig

tf1 = tf.compat.v1


def predictions(
    built: BuiltModel, config: RunConfig, checkpoint: str | None, hooks: Sequence[Any], keys: Sequence[str] | None
) -> Iterator[Any]:
    """Yields the predictions of each session run, an array or a dictionary of arrays, until the data ends.

    The session is made at once, in the current graph; it runs when the result is iterated over.

    Args:
        built: the model.
        config: how sessions are made.
        checkpoint: what the variables are restored from; None for their initial values.
        hooks: the caller's.
        keys: which of the predictions are wanted, by name; None for all.

    Raises:
        ValueError: if `keys` are wanted and the predictions have no names, or none of these.
    """
    wanted = _selected(built.spec.predictions, keys)
    leftovers = None if built.leftovers is None else _selected(built.leftovers, keys)
    graph = tf1.get_default_graph()
    creator = tf1.train.ChiefSessionCreator(
        scaffold=built.spec.scaffold or tf1.train.Scaffold(),
        checkpoint_filename_with_path=checkpoint,
        config=config.session_options(),
    )
    session = tf1.train.MonitoredSession(creator, hooks=[*built.hooks, *hooks, *built.spec.prediction_hooks])
    return _runs(session, wanted, leftovers, graph)


def _runs(session: Any, wanted: Any, leftovers: Any, graph: tf.Graph) -> Iterator[Any]:
    with session:
        while not session.should_stop():
            try:
                predicted = session.run(wanted)
            except tf.errors.OutOfRangeError:
                break
            yield predicted
    if leftovers is not None:
        with tf1.Session(graph=graph) as plain:
            yield plain.run(leftovers)


def examples(runs: Iterator[Any]) -> Iterator[Any]:
    """The single examples of runs: what lies along the first dimension.

    Raises:
        ValueError: if the arrays of a dictionary have different lengths.
    """
    for predicted in runs:
        if not isinstance(predicted, dict):
            yield from predicted
        else:
            for index in range(_length(predicted)):
                yield {name: array[index] for name, array in predicted.items()}


def _length(predicted: dict[str, np.ndarray]) -> int:
    lengths = {name: array.shape[0] for name, array in predicted.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"Batch length of predictions should be same. Received lengths {lengths}.")
    return next(iter(lengths.values()))


def _selected(predicted: Any, keys: Sequence[str] | None) -> Any:
    if keys is None:
        return predicted
    if not isinstance(predicted, dict):
        raise ValueError("predict_keys argument is not valid in case of non-dict predictions.")
    chosen = {name: value for name, value in predicted.items() if name in keys}
    if not chosen:
        raise ValueError(f"Expected to run at least one output from {list(predicted)}, provided {list(keys)}.")
    return chosen
