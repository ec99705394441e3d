"""Programs of the replicas of all instances; their results do not depend on how replicas are divided among instances.

    python -m tests.helpers.instances_fits FOLDER CASE...      in each instance

A case is "ACCUMULATION STAGES", by which a small Keras model trains, or "collectives". `FOLDER/<case> <instance>.npz`
has the weights and the losses of the epochs, or what the collectives give.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf import popdist
from ipu_tf.distributed.popdist_strategy import PopDistStrategy
from ipu_tf.popdist.tensorflow import set_ipu_config

BATCHES, BATCH = 32, 2


def own_batches() -> tf.data.Dataset:
    """This instance's batches: together the instances take them in the order of one process."""
    numbers = np.random.default_rng(3)
    x = numbers.normal(size=(BATCHES * BATCH, 6)).astype(np.float32)
    y = np.stack([x.sum(1), x[:, 0] * x[:, 1]], 1)
    replicas = popdist.getNumLocalReplicas()
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True).batch(replicas)
    own = data.shard(popdist.getNumInstances(), popdist.getInstanceIndex()).unbatch()
    return own.apply(tf.data.experimental.assert_cardinality(BATCHES // popdist.getNumInstances()))


def made(accumulation: int, stages: int) -> Any:
    """A compiled model with batch normalisation and dropout, on the strategy of the scope."""
    given = keras.Input((6,))
    first = keras.layers.Dense(5, activation="tanh")(given)
    first = keras.layers.BatchNormalization()(first)
    model = keras.Model(given, keras.layers.Dense(2)(keras.layers.Dropout(0.25, seed=5)(first)))
    model.compile(keras.optimizers.SGD(0.03, momentum=0.9), "mse", metrics=["mae"], steps_per_execution=4)
    if stages > 1:
        assignment = model.get_pipeline_stage_assignment()
        for place, each in enumerate(assignment):
            each.pipeline_stage = int(place >= 2)
        model.set_pipeline_stage_assignment(assignment)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=accumulation)
    elif accumulation > 1:
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=accumulation)
    return model


def fit(accumulation: int, stages: int) -> dict[str, Any]:
    """Trains for two epochs; returns the weights by their numbers, the losses, and what `evaluate` gives."""
    set_ipu_config(ipu.config.IPUConfig(), ipus_per_replica=stages).configure_ipu_system()
    ipu.utils.reset_ipu_seed(7)
    keras.utils.set_random_seed(popdist.getInstanceIndex())  # other initial values, which those of instance 0 replace
    with PopDistStrategy().scope():
        model = made(accumulation, stages)
        history = model.fit(own_batches(), epochs=2, shuffle=False, verbose=0).history
        metrics = model.evaluate(own_batches(), verbose=0)
    weights = {str(place): np.asarray(weight) for place, weight in enumerate(model.get_weights())}
    return {**weights, "losses": history["loss"], "mae": history["mae"], "evaluated": metrics}


def collectives() -> dict[str, Any]:
    """Returns what each collective gives the first replica of this instance, by name."""
    set_ipu_config(ipu.config.IPUConfig()).configure_ipu_system()
    everyone, operations = popdist.getNumTotalReplicas(), ("ADD", "MEAN", "MUL", "MIN", "MAX", "SQUARE_ADD")

    @tf.function
    def program() -> dict[str, tf.Tensor]:
        index = tf.cast(ipu.replication_ops.replication_index(), tf.float32)
        own = tf.range(8, dtype=tf.float32) - 3 * index
        half = tf.cast(own * 0.01, tf.float16)
        done = tf.while_loop(lambda turn: turn < 3, lambda turn: turn + ipu.cross_replica_ops.cross_replica_sum(1), [0])
        found = {
            "index": index,
            "sum": ipu.cross_replica_ops.cross_replica_sum(own),
            "half": ipu.cross_replica_ops.cross_replica_sum(half),
            "mean": ipu.cross_replica_ops.cross_replica_mean(own),
            "pairs": ipu.cross_replica_ops.cross_replica_sum(own, replica_group_size=2),
            "gathered": ipu.all_to_all_op.all_gather(own, everyone),
            "all to all": ipu.all_to_all_op.all_to_all(own, 0, 0, everyone),
            "loop": done[0],
        }
        for each in operations:
            found[each] = ipu.reduce_scatter_op.reduce_scatter(own, everyone, f"COLLECTIVE_OP_{each}")
        return found

    return {name: value.numpy() for name, value in PopDistStrategy().run(program).items()}


def results(case: str) -> dict[str, Any]:
    """Returns what a case gives this instance."""
    return collectives() if case == "collectives" else fit(*map(int, case.split()))


def main(folder: str, cases: list[str]) -> None:
    popdist.init()
    for case in cases:
        np.savez(Path(folder) / f"{case} {popdist.getInstanceIndex()}.npz", **results(case))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
