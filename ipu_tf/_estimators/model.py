"""Loop of a `model_fn` on the device: features and labels from an infeed, results to an outfeed."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_tf.ipu_infeed_queue import IPUInfeedQueue
from ipu_tf.ipu_outfeed_queue import IPUOutfeedQueue
from ipu_tf.ipu_run_config import IPURunConfig, RunConfig
from ipu_tf.tf_estimator.model_fn import EstimatorSpec

HOST = "/device:CPU:0"


@dataclasses.dataclass(frozen=True)
class EstimatorModel:
    """A `model_fn` and the arguments it is called with.

    Attributes:
        model_fn: the user's function.
        mode: one of `ModeKeys`.
        params: the hyper-parameters for this mode.
        config: the estimator's configuration.
    """

    model_fn: Callable[..., Any]
    mode: str
    params: dict[str, Any]
    config: RunConfig

    @property
    def run(self) -> IPURunConfig:
        """The part of the configuration that concerns the device."""
        return self.config.ipu_run_config


class EstimatorLoop(abc.ABC):
    """A loop on the device over the batches of an infeed, and the host's processing of its results.

    Args:
        model: the model.
        infeed: its data.
    """

    def __init__(self, model: EstimatorModel, infeed: IPUInfeedQueue) -> None:
        self.model = model
        self.infeed = infeed
        self.outfeed: IPUOutfeedQueue | None = None
        self.hooks: tuple[Any, ...] = ()

    @abc.abstractmethod
    def program(self) -> Any:
        """The loop, inside `ipu_compiler.compile`; sets `hooks`, and `outfeed` if there is one."""

    @abc.abstractmethod
    def finish(self, compiled: Any) -> EstimatorSpec:
        """Adds host ops for the results of `compile`; returns them as the spec of an ordinary estimator."""

    def leftovers(self) -> Any:
        """Dequeues predictions of earlier runs from the outfeed; None where there are none to save."""
        return None

    def dequeued(self, after: Any) -> Any:
        """The elements of the outfeed once `after`, results or the operation of the program, is there."""
        with tf.device(HOST), tf.control_dependencies(after if isinstance(after, list) else [after]):
            return self.outputs()

    def outputs(self) -> Any:
        """The elements that are in the outfeed when this is computed."""
        assert self.outfeed is not None
        with tf.device(HOST):
            elements = self.outfeed.dequeue(wait_for_completion=True)
            if self.model.run.num_replicas == 1:
                return elements
            # Replicas add a dimension, which the queue, made before the program, does not know of.
            return tf.nest.map_structure(lambda tensor: tf.compat.v1.placeholder_with_default(tensor, None), elements)


def mean_over_loop(model: EstimatorModel, total: tf.Tensor) -> tf.Tensor:
    """The mean over iterations, and replicas, of a sum over a loop's iterations; inside the program."""
    mean = total / model.run.iterations_per_loop
    if model.run.num_replicas == 1:
        return mean
    from ipu_tf.ops import cross_replica_ops

    return cross_replica_ops.cross_replica_mean(mean)
