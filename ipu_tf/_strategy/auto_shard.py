"""Shards datasets among instances by `options.experimental_distribute.auto_shard_policy`, where it is set."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._training.replication import instance_count, instance_index

keras_distributes: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_keras_distributes", default=False)
"""Whether Keras asks the strategy to distribute data, which are sharded already where they are to be."""

FirstBatch = Callable[[Sequence[np.ndarray]], None]
"""Called with the arrays of the first batch of the whole dataset."""

_Policy = tf.data.experimental.AutoShardPolicy


def sharded(dataset: tf.data.Dataset, replicas: int, on_first: FirstBatch = lambda arrays: None) -> tf.data.Dataset:
    """Returns this instance's share of the batches of a dataset, as its options say.

        DATA     2 instances of 2 replicas:  0 1 | 2 3 | 4 5 | 6 7      those of one process, in its order
                                             first      first
        FILE     files by number, as stock TensorFlow's strategies divide them
        HINT     where the program says `shard(tf.data.experimental.SHARD_HINT, tf.data.experimental.SHARD_HINT)`
        OFF      all batches: the program gives each instance its own
        AUTO     the same; it is TensorFlow's default

    Args:
        dataset: of batches.
        replicas: how many batches a step takes in each instance.
        on_first: called when the first of all batches is read, where the policy is DATA.

    Raises:
        ValueError: if there are fewer files than instances, or none, or the batches do not fill the last step.
    """
    policy, instances = dataset.options().experimental_distribute.auto_shard_policy, instance_count()
    if instances == 1 or policy in (_Policy.OFF, _Policy.AUTO):
        return dataset
    if policy == _Policy.DATA:
        share = _in_order(dataset, replicas, on_first)
    else:
        share = _by_tensorflow(dataset, policy, instances)
    # A variant has no policy in Python: TensorFlow would warn of the change.
    own = tf.data.experimental.from_variant(tf.data.experimental.to_variant(share), share.element_spec)
    return own.with_options(_sharded_already())


def is_sharded_by_data(dataset: Any) -> bool:
    """Returns whether `sharded` gives this instance every other batch of the same data that all instances read."""
    known = isinstance(dataset, tf.data.Dataset) and instance_count() > 1
    return known and dataset.options().experimental_distribute.auto_shard_policy == _Policy.DATA


def _sharded_already() -> tf.data.Options:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = _Policy.OFF
    return options


def _in_order(dataset: tf.data.Dataset, replicas: int, on_first: FirstBatch) -> tf.data.Dataset:
    """Returns the batches of this instance's replicas of each step, of the order that one process has."""
    step, first = replicas * instance_count(), replicas * instance_index()
    wanted = (
        f"AutoShardPolicy.DATA divides the {step} batches of each step among {instance_count()} instances. The data "
        f"must have a multiple of {step} batches: use `take`, `repeat` or another batch size."
    )
    count = int(dataset.cardinality())
    if count >= 0 and count % step:
        raise ValueError(f"{wanted} Received: {count}.")

    def share(number: tf.Tensor, parts: Any) -> tf.data.Dataset:
        batches = parts if isinstance(parts, tf.data.Dataset) else tf.data.Dataset.zip(parts)
        full = tf.debugging.assert_equal(
            batches.cardinality(), tf.constant(step, tf.int64), f"{wanted} Received: more."
        )
        with tf.control_dependencies([full, _told(number, batches, on_first)]):
            return batches.skip(tf.constant(first, tf.int64)).take(replicas)

    shares = dataset.window(step).enumerate().flat_map(tf.autograph.experimental.do_not_convert(share))
    known = count // step * replicas if count >= 0 else count
    return (
        shares if count == tf.data.UNKNOWN_CARDINALITY else shares.apply(tf.data.experimental.assert_cardinality(known))
    )


def _told(number: tf.Tensor, batches: tf.data.Dataset, on_first: FirstBatch) -> tf.Operation | tf.Tensor:
    """Calls a function with the first batch, if these are the first batches."""

    def tell(*arrays: np.ndarray) -> np.int64:
        on_first(arrays)
        return np.int64(0)

    def first() -> tf.Tensor:
        batch = tf.nest.flatten(batches.take(1).get_single_element(), expand_composites=True)
        return tf.numpy_function(tell, [leaf for leaf in batch if leaf is not None], tf.int64)

    return tf.cond(tf.equal(number, 0), first, lambda: tf.constant(0, tf.int64))


def _by_tensorflow(dataset: tf.data.Dataset, policy: Any, instances: int) -> tf.data.Dataset:
    spec = dataset.element_spec
    leaves = tf.nest.flatten(spec, expand_composites=True)
    try:
        variant = tf.raw_ops.AutoShardDataset(
            input_dataset=tf.data.experimental.to_variant(dataset),
            num_workers=instances,
            index=instance_index(),
            output_types=[leaf.dtype for leaf in leaves],
            output_shapes=[leaf.shape for leaf in leaves],
            auto_shard_policy=policy.value,
            num_replicas=instances,
        )
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
        raise ValueError(
            f"AutoShardPolicy.{policy.name} needs a dataset that reads files, at least one for each of {instances} "
            f"instances. Received: one of which TensorFlow says: {error.message.splitlines()[0][:200]} "
            "AutoShardPolicy.DATA shards any."
        ) from None
    return tf.data.experimental.from_variant(variant, spec)
