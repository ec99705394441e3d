"""Programs of the replicas of all instances; their results do not depend on how replicas are divided among instances.

    python -m tests.helpers.instances_fits FOLDER CASE...      in each instance

A case is "ACCUMULATION STAGES", by which a small Keras model trains, or one of `NAMED`. `FOLDER/<case> <instance>.npz`
has the weights and the losses of the epochs, what the collectives give, values read, or a table on the host.
"""

from __future__ import annotations

import sys
import tempfile
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


def own_batches(by_policy: bool) -> tf.data.Dataset:
    """This instance's batches, or all of which it takes them: the instances take them in the order of one process."""
    numbers = np.random.default_rng(3)
    x = numbers.normal(size=(BATCHES * BATCH, 6)).astype(np.float32)
    y = np.stack([x.sum(1), x[:, 0] * x[:, 1]], 1)
    replicas = popdist.getNumLocalReplicas()
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True)
    if by_policy:
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        return batches.with_options(options)
    data = batches.batch(replicas)
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
        schedules = ipu.pipelining_ops.PipelineSchedule
        schedule = schedules.Sequential if accumulation == 1 else schedules.Grouped  # which needs 2 a stage
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=accumulation, pipeline_schedule=schedule)
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
        history = model.fit(own_batches(accumulation > 1), epochs=2, shuffle=False, verbose=0).history
        metrics = model.evaluate(own_batches(accumulation == 1), verbose=0)
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


def variables() -> dict[str, Any]:
    """Returns what is read of variables of each kind, which instances begin and change with other values."""
    set_ipu_config(ipu.config.IPUConfig()).configure_ipu_system()
    strategy, own, kinds = PopDistStrategy(), popdist.getInstanceIndex() + 1.0, tf.VariableAggregation
    on_read = tf.VariableSynchronization.ON_READ
    with strategy.scope():
        mirrored = tf.Variable(own)
        summed = tf.Variable(0.0, aggregation=kinds.SUM)
        read = tf.Variable(own, synchronization=on_read, aggregation=kinds.MEAN)
        first = tf.Variable(10.0, synchronization=on_read, aggregation=kinds.ONLY_FIRST_REPLICA)
        of_keras = keras.Variable(0.0, aggregation="sum", synchronization="on_read").value

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        summed.assign_add(x)
        read.assign(read + x)
        first.assign_add(x)
        return mirrored * x

    found: dict[str, Any] = {"result": strategy.run(step, [tf.constant(own)]), "graph": tf.function(read.read_value)()}
    with tempfile.TemporaryDirectory() as folder:
        saved = tf.train.Checkpoint(each=read, summed=summed)
        path = saved.write(f"{folder}/saved")
        summed.assign(0.0)
        saved.read(path)
        found["saved"] = tf.train.load_variable(path, "each/.ATTRIBUTES/VARIABLE_VALUE")
    kinds_of = " ".join(type(each).__name__ for each in (mirrored, read, of_keras))
    values = {"mirrored": mirrored, "summed": summed, "read": read, "first": first}
    return {**found, **{name: each.numpy() for name, each in values.items()}, "kinds": kinds_of, "place": read.device}


def embedding() -> dict[str, Any]:
    """Trains a table on the host; returns it, and what batch normalisation over groups of replicas gives replica 0."""
    config = set_ipu_config(ipu.config.IPUConfig())
    config.norms.experimental.distributed_batch_norm_replica_group_size = popdist.getNumTotalReplicas()
    config.configure_ipu_system()
    embeddings, everyone = ipu.embedding_ops, popdist.getNumTotalReplicas()
    start = np.arange(20, dtype=np.float32).reshape(10, 2) + popdist.getInstanceIndex()  # instance 0's are taken
    table = embeddings.HostEmbedding(
        "table", tf.Variable(start), optimizer_spec=embeddings.HostEmbeddingOptimizerSpec(0.1)
    )

    @tf.function
    def step() -> tuple[tf.Tensor, tf.Tensor]:
        index = ipu.replication_ops.replication_index()
        with tf.GradientTape() as tape:
            rows = table.lookup(tf.stack([index, 9, 2 * index]))
            loss = tf.reduce_sum(rows * rows) * tf.cast(index + 1, tf.float32)
        tape.gradient(loss, tape.watched_variables())
        image = tf.reshape(tf.cast(index, tf.float32) * tf.range(4.0), [4, 1, 1, 1])
        normal = tf.compat.v1.nn.fused_batch_norm(image, [1.0], [0.0], is_training=True)
        return loss, tf.stack([tf.reduce_max(normal[0]), normal[1][0], normal[2][0]])

    strategy = PopDistStrategy()
    with table.register():
        for _ in range(3):
            loss, normal = strategy.run(step)
    assert everyone == strategy.num_replicas_in_sync
    return {"table": table.get_embedding_tensor().numpy(), "loss": loss, "normal": normal}


def rounded() -> dict[str, Any]:
    """Adds numbers to float16 variables, rounded stochastically and alike on all replicas; returns the variables."""
    config = set_ipu_config(ipu.config.IPUConfig())
    config.floating_point_behaviour.esr = ipu.config.StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY
    config.configure_ipu_system()
    strategy, found = PopDistStrategy(), {}
    for name in ("unseeded", "seeded"):
        if name == "seeded":
            ipu.utils.reset_ipu_seed(7)
        with strategy.scope():
            sums = tf.Variable(tf.ones([256], tf.float16))

        @tf.function
        def step(sums: tf.Variable = sums) -> tf.Tensor:
            own = tf.cast(ipu.replication_ops.replication_index(), tf.float16) * tf.constant(3e-4, tf.float16)
            sums.assign_add(tf.fill([256], tf.constant(3e-4, tf.float16)))
            return tf.constant(1.0, tf.float16) + own  # which differs, and is rounded to the nearest

        for _ in range(3):
            strategy.run(step)
        found[name] = sums.numpy()
    return found


NAMED = {"collectives": collectives, "variables": variables, "embedding": embedding, "rounded": rounded}
"""Cases that train no Keras model."""


def results(case: str) -> dict[str, Any]:
    """Returns what a case gives this instance."""
    return NAMED[case]() if case in NAMED else fit(*map(int, case.split()))


def main(folder: str, cases: list[str]) -> None:
    popdist.init()
    for case in cases:
        np.savez(Path(folder) / f"{case} {popdist.getInstanceIndex()}.npz", **results(case))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
