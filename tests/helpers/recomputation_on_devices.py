"""Tests of recomputation on four JAX devices, and of what stages keep: run by `test_pipeline_run.py`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.device.schedule.timetable import Recomputation, TaskKind
from ipu_tf.emulation import ignored_arguments
from ipu_tf.ops.pipelining_ops import PipelineSchedule, RecomputationMode, recomputation_checkpoint
from ipu_tf.pipeline import StageCosts, peak_stash, run_on_devices, stage_peaks
from tests.helpers.pipeline_on_devices import (  # noqa: F401 - a fixture
    BATCH,
    COUNT,
    REPEAT,
    SIZES,
    Model,
    counted,
    four_ipus,
    in_both,
    momentum,
    same,
    strategy,
)

THEN, WITH = RecomputationMode.RecomputeThenBackpropagate, RecomputationMode.RecomputeAndBackpropagateInterleaved
MODES = {
    (PipelineSchedule.Grouped, THEN): Recomputation.THEN_BACKPROPAGATE,
    (PipelineSchedule.Grouped, WITH): Recomputation.WITH_BACKPROPAGATE,
    (PipelineSchedule.Interleaved, THEN): Recomputation.THEN_BACKPROPAGATE,
    (PipelineSchedule.Sequential, WITH): Recomputation.WITH_BACKPROPAGATE,
}


def layer_bytes(layer: int) -> int:
    """Bytes of what a layer of a model takes of one micro-batch."""
    return 4 * BATCH * SIZES[layer]


@four_ipus
@pytest.mark.parametrize(("schedule", "mode"), [*MODES, (PipelineSchedule.Grouped, None)])
def test_stages_keep_what_the_formula_says(strategy: Any, schedule: PipelineSchedule, mode: Any) -> None:  # noqa: F811
    kept = in_both(lambda: Model(strategy, momentum, 4, pipeline_schedule=schedule, recomputation_mode=mode))
    counts = counted()
    assert counts.timetable is not None
    assert counts.timetable.recomputation is MODES.get((schedule, mode), Recomputation.NONE)
    assert counts.order == counts.timetable.order()
    assert counts.stash_peaks == peak_stash(counts.timetable)
    # tanh(h @ w) needs of its forward pass h, which the stage was given, and its own result.
    costs = [StageCosts(input_bytes=layer_bytes(s), activation_bytes=layer_bytes(s + 1)) for s in range(4)]
    wanted = [peak.stashed_bytes for peak in stage_peaks(counts.timetable, costs)]
    assert list(counts.stash_bytes[:-1]) == wanted[:-1]
    [part] = (part for part in ipu.reports.last().parts if part.stages)
    assert tuple(max(stage.stashes) for stage in part.stages) == counts.stash_bytes
    again = {device: n for (device, kind), n in counts.executions.items() if kind is TaskKind.RECOMPUTE}
    del kept
    assert again == ({} if mode is None else dict.fromkeys(range(3), COUNT * REPEAT))


@four_ipus
def test_auto_recomputes_where_the_configuration_allows_it(strategy: Any) -> None:  # noqa: F811
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.allow_recompute = True
    config.configure_ipu_system()
    in_both(lambda: Model(strategy, momentum, 4, pipeline_schedule=PipelineSchedule.Interleaved))
    assert counted().executions[0, TaskKind.RECOMPUTE] == COUNT * REPEAT


def test_a_mode_that_the_schedule_does_not_support_gives_way(strategy: Any) -> None:  # noqa: F811
    in_both(lambda: Model(strategy, momentum, pipeline_schedule=PipelineSchedule.Sequential, recomputation_mode=THEN))
    timetable = counted().timetable
    assert timetable is not None and timetable.recomputation is Recomputation.WITH_BACKPROPAGATE
    reasons = {item.name: item.reason for item in ignored_arguments()}
    assert "sequential schedule does not support it" in reasons["pipeline.recomputation_mode"]


def test_in_one_loop_the_mode_is_recorded(strategy: Any) -> None:  # noqa: F811
    run_on_devices("loop")
    Model(strategy, momentum, recomputation_mode=WITH).run()
    [found] = [item for item in ignored_arguments() if item.name == "pipeline.recomputation_mode"]
    assert "Interleaved" in found.value and "one loop on one device" in found.reason


class Deep(Model):
    """Two layers in stage 0, the first of which may be a checkpoint."""

    kept = False

    def stage(self, number: int, h: tf.Tensor) -> tf.Tensor:
        if number == 0:
            h = tf.exp(tf.concat([h, h], 1))
            h = recomputation_checkpoint(h) if self.kept else h
            h = tf.sin(h)[:, : SIZES[0]]
        return super().stage(number, h)


def test_checkpoints_are_kept(strategy: Any) -> None:  # noqa: F811
    class Kept(Deep):
        kept = True

    found = {}
    for kind in (Deep, Kept):
        kept = in_both(lambda kind=kind: kind(strategy, momentum, recomputation_mode=WITH, device_mapping=[0, 1]))  # type: ignore[misc]
        assert counted().stash_peaks == (3, 1)
        [part] = (part for part in ipu.reports.last().parts if part.stages)
        assert max(part.stages[0].stashes) == counted().stash_bytes[0]
        del kept
        found[kind] = counted().stash_bytes[0]
    # Each of three micro-batches keeps the checkpoint in place of the stage's input, which is half as large: there is
    # nothing before the checkpoint to compute again, as no gradient goes back beyond it.
    assert found[Kept] - found[Deep] == 3 * (2 * layer_bytes(0) - layer_bytes(0))


class Noisy(Model):
    """Random masks, a host call, and a moving average that a micro-batch changes."""

    cut = False

    def __init__(self, strategy: Any, *args: Any, **named: Any) -> None:  # noqa: F811
        super().__init__(strategy, *args, **named)
        with strategy.scope():
            self.average = tf.Variable(tf.ones([SIZES[1]]), trainable=False)
        ipu.utils.reset_ipu_seed(7)

    def stage(self, number: int, h: tf.Tensor) -> tf.Tensor:
        h = super().stage(number, h)
        if number == 0:
            before = h
            h = recomputation_checkpoint(h) if self.cut else h
            h = tf.nn.dropout(tf.sin(h), 0.4)
            h = recomputation_checkpoint(h) if self.cut else h
            h = tf.nn.dropout(h * tf.exp(self.average), 0.2) + tf.sin(before)
            average = self.average.assign(0.9 * self.average + 0.1 * tf.reduce_mean(tf.stop_gradient(h), 0))
            with tf.control_dependencies([average]):
                h = tf.cos(h)
        return h


class CutNoisy(Noisy):
    """The same in three parts, of which the last reads what the first makes."""

    cut = True


def test_masks_replay_and_state_is_not_changed_twice(strategy: Any) -> None:  # noqa: F811
    results = []
    for kind, mode in ((Noisy, None), (Noisy, THEN), (Noisy, WITH), (CutNoisy, THEN), (CutNoisy, WITH)):
        _, model = in_both(lambda kind=kind, mode=mode: kind(strategy, momentum, recomputation_mode=mode))  # type: ignore[misc]
        assert isinstance(model, Noisy)
        results.append([*model.values(), model.average.numpy()])
    for result in results[1:]:
        same(results[0][:-2] + results[0][-1:], result[:-2] + result[-1:])


@four_ipus
@pytest.mark.parametrize("mode", [THEN, WITH])
def test_a_keras_model_recomputes(strategy: Any, mode: RecomputationMode) -> None:  # noqa: F811
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(48, 8, 8, 3)).astype(np.float32), np.arange(48) % 3

    def trained(recomputation: Any) -> list[np.ndarray]:
        run_on_devices("devices")
        keras.utils.set_random_seed(1)
        layers = keras.layers
        with strategy.scope():
            parts = [
                layers.Conv2D(4, 3, activation="relu"),
                layers.BatchNormalization(),
                layers.Dropout(0.3, seed=3),
                layers.Flatten(),
                layers.Dense(3),
            ]
            model = keras.Sequential([keras.Input(x.shape[1:]), *parts])
            model.set_pipeline_stage_assignment([0, 0, 0, 1, 2])
            options = {} if recomputation is None else {"recomputation_mode": recomputation}
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=6, **options)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(momentum(), loss, steps_per_execution=6)
        history = model.fit(x, y, batch_size=4, verbose=0, shuffle=False, epochs=2).history
        return [np.asarray(history["loss"]), *model.get_weights()]

    wanted = trained(None)
    without = counted()
    same(wanted, trained(mode))
    assert counted().stash_bytes[0] < without.stash_bytes[0]
    assert counted().executions[0, TaskKind.RECOMPUTE] == 6  # in the last execution
