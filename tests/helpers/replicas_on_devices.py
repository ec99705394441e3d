"""Tests of replicated pipelines with a JAX device for each stage of each replica: run by `test_pipeline_run.py`."""

from __future__ import annotations

import gc
from typing import Any

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.device.memory.residency import RESIDENCY
from ipu_tf.device.schedule.timetable import TaskKind
from ipu_tf.ops.cross_replica_ops import cross_replica_sum
from ipu_tf.ops.pipelining_ops import PipelineSchedule, RecomputationMode
from ipu_tf.pipeline import PipelineDevicesError, peak_stash, run_on_devices
from tests.helpers.device_counts import device_work
from tests.helpers.pipeline_on_devices import (  # noqa: F401 - a fixture
    COUNT,
    REPEAT,
    Model,
    Printing,
    changing,
    clipped_adam,
    counted,
    devices_of,
    four_ipus,
    in_both,
    momentum,
    same,
    strategy,
    without_sample,
)

REPLICAS = 2

pytestmark = four_ipus
"""Of which a pipeline on two is two replicas: IPU i of replica r is device 2 r + i."""


class Averaged(Model):
    """Two stages whose replicas meet: in what stage 0 gives, and in the gradient of the loss."""

    def stage(self, number: int, h: tf.Tensor) -> tf.Tensor:
        h = super().stage(number, h)
        return h - cross_replica_sum(tf.stop_gradient(tf.reduce_mean(h, 0))) / REPLICAS if number == 0 else h

    def loss(self, loss: tf.Tensor) -> tf.Tensor:
        return cross_replica_sum(loss) / REPLICAS


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_a_schedule_is_followed(strategy: Any, schedule: PipelineSchedule) -> None:  # noqa: F811
    with device_work() as measured:
        _, model = in_both(lambda: Averaged(strategy, momentum, pipeline_schedule=schedule))
    assert measured.counts.steps == 2 * COUNT * REPEAT
    assert model.optimizer is not None
    counts = counted()
    assert counts.timetable is not None
    assert counts.order == counts.timetable.order()
    assert counts.stash_peaks == peak_stash(counts.timetable)
    kinds = (TaskKind.FORWARD, TaskKind.BACKWARD, TaskKind.UPDATE)
    assert dict(counts.executions) == {
        (2 * replica + device, kind): REPEAT
        * sum(placed.device == device and placed.task.kind is kind for placed in counts.timetable.placed())
        for replica in range(REPLICAS)
        for device in range(2)
        for kind in kinds
    }
    slots = [v.value for v in model.optimizer.variables if len(v.shape) == 2]
    for stage in range(2):
        assert devices_of(model.weights[stage]) == devices_of(slots[stage]) == [stage, 2 + stage]


def test_bytes_of_weights_are_on_their_devices_alone(strategy: Any) -> None:  # noqa: F811
    run_on_devices("devices")
    RESIDENCY.forget()
    model = Averaged(strategy, momentum).run()
    gc.collect()
    found = {
        (shard.data.shape[1:], shard.device.id)
        for array in jax.live_arrays()
        if array.ndim == 3
        for shard in array.addressable_shards
    }
    shapes = [tuple(weight.shape) for weight in model.weights]
    wanted = {(shape, 2 * replica + stage) for stage, shape in enumerate(shapes) for replica in range(REPLICAS)}
    assert {pair for pair in found if pair[0] in shapes} == wanted
    sizes = [4 * int(np.prod(shape)) for shape in shapes]
    assert [seen - 2 * size for seen, size in zip(counted().weights, sizes, strict=True)] == [4 + 8, 0]


class Noisy(Averaged):
    """Random masks, a moving average that each micro-batch changes, and replicas that differ."""

    def __init__(self, strategy: Any, *args: Any, **named: Any) -> None:  # noqa: F811
        super().__init__(strategy, *args, **named)
        with strategy.scope():
            self.average = tf.Variable(tf.ones([self.weights[0].shape[1]]), trainable=False)
        ipu.utils.reset_ipu_seed(7)

    def stage(self, number: int, h: tf.Tensor) -> tf.Tensor:
        h = super().stage(number, h)
        if number == 0:
            h = tf.nn.dropout(tf.sin(h), 0.4) * tf.exp(self.average)
            mean = tf.reduce_mean(tf.stop_gradient(h), 0)
            with tf.control_dependencies([self.average.assign(0.9 * self.average + 0.1 * mean)]):
                h = tf.cos(h)
        return h


@pytest.mark.parametrize("mode", [None, RecomputationMode.RecomputeThenBackpropagate])
def test_masks_and_moving_averages_are_each_replicas_own(strategy: Any, mode: Any) -> None:  # noqa: F811
    _, model = in_both(lambda: Noisy(strategy, clipped_adam, recomputation_mode=mode))
    again = counted().executions.get((2, TaskKind.RECOMPUTE), 0)
    assert again == (0 if mode is None else COUNT * REPEAT)
    assert isinstance(model, Noisy)
    elements = model.run().elements()
    assert elements.shape == (COUNT * REPEAT, REPLICAS)
    np.testing.assert_array_equal(np.any(elements[:, 0] != elements[:, 1]), True)


def test_inference_gives_the_elements_of_all_replicas(strategy: Any) -> None:  # noqa: F811
    in_both(lambda: Model(strategy, None, pipeline_schedule=PipelineSchedule.Interleaved))


def test_one_model_may_change_between_loop_and_devices(strategy: Any) -> None:  # noqa: F811
    changing(lambda: Averaged(strategy, momentum))


def test_an_infeed_that_ends_within_a_micro_batch(strategy: Any) -> None:  # noqa: F811
    """Replica 0's element is there, replica 1's is not: it is given back, and the next run starts from it."""
    ended = COUNT * REPLICAS + 3

    found = []
    for mode in ("loop", "devices"):
        run_on_devices(mode)
        model = without_sample(ended, Averaged(strategy, momentum))
        with pytest.raises(Exception, match="no such sample"):
            model.run()
        found.append(model.values())
    assert len(found[0][-1]) == ended // REPLICAS
    same(*found)


def test_replicas_that_call_the_host_run_as_one_loop(strategy: Any) -> None:  # noqa: F811
    run_on_devices("devices")
    with pytest.raises(PipelineDevicesError, match="its replicas call the host"):
        Printing(strategy, momentum).run()


def test_a_keras_model(strategy: Any) -> None:  # noqa: F811
    x = np.random.default_rng(0).normal(size=(128, 8)).astype(np.float32)
    y = np.arange(128) % 3

    def trained(mode: Any) -> list[np.ndarray]:
        run_on_devices(mode)
        keras.utils.set_random_seed(1)
        layers = keras.layers
        with strategy.scope():
            model = keras.Sequential(
                [
                    keras.Input((8,)),
                    layers.Dense(16, activation="relu"),
                    layers.BatchNormalization(),
                    layers.Dropout(0.3, seed=3),
                    layers.Dense(3),
                ]
            )
            model.set_pipeline_stage_assignment([0, 0, 1, 1])
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(momentum(), loss, metrics=["accuracy"], steps_per_execution=8)
        history = model.fit(x, y, batch_size=4, verbose=0, shuffle=False).history
        if mode == "devices":
            assert [devices_of(v.value) for v in model.trainable_variables] == [[0, 2]] * 4 + [[1, 3]] * 2
        predicted = model.predict(x[:64], batch_size=4, verbose=0)
        return [*map(np.asarray, history.values()), predicted, *model.get_weights()]

    same(trained("loop"), trained("devices"))
