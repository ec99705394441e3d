"""`model.ipu_report()`: layers by name with XLA's FLOPs, categories of variables, measured times.

Run with Keras on TensorFlow here, on JAX by `test_keras_on_jax.py`.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import ipu_tf as ipu
from ipu_tf._pva.report import opened
from ipu_tf.ops.pipelining_ops import RecomputationMode
from ipu_tf.reports import Category, Part, Report, layer_costs
from ipu_tf.reports.ticks import over_ticks
from keras_ipu import PipelineStage
from keras_ipu.addons.layers import RecomputationCheckpoint
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy
from tests.helpers.some_ipus import ipus

__all__ = ["strategy"]

BATCH = 8
on_tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="on JAX a pipeline is one loop")


def trained(strategy: Any) -> keras.Model:
    """A network with an inner model, trained for one execution of four steps."""
    x = np.random.default_rng(1).random((4 * BATCH, 8, 8, 3), np.float32)
    with strategy.scope(), device_work() as work:
        inner = keras.Sequential([keras.Input((6, 6, 4)), keras.layers.Dense(5, name="mixer")], name="block")
        network = [keras.layers.Conv2D(4, 3, name="eyes"), inner, keras.layers.Flatten()]
        model = keras.Sequential([keras.Input((8, 8, 3)), *network, keras.layers.Dense(1, name="head")])
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse", steps_per_execution=4)
        model.fit(x, x[:, 0, 0, :1], batch_size=BATCH, verbose=0)
    assert (work.counts.executions, work.counts.steps) == (1, 4)
    return model


def test_layers_have_their_products(strategy: Any) -> None:
    [part] = trained(strategy).ipu_report().parts
    costs = {each.name.rpartition("/")[2]: each for each in layer_costs(part)}
    eyes, mixer, head = 2 * 36 * 4 * 27 * BATCH, 2 * 36 * 4 * 5 * BATCH, 2 * 36 * 5 * BATCH
    for name, products, bias in (("eyes", eyes, 36 * 4), ("mixer", mixer, 36 * 5), ("head", head, 1)):
        assert costs[name].forward_flops == products + bias * BATCH
    # The first layer's gradient is that of its weights alone; the others have those of their inputs too.
    assert eyes <= costs["eyes"].backward_flops < 1.2 * eyes
    assert 2 * mixer <= costs["mixer"].backward_flops < 2.3 * mixer
    assert any(name.startswith("block/mixer") or "/block/mixer" in name for name in (e.name for e in layer_costs(part)))
    assert sum(each.flops for each in costs.values()) == sum(each.flops for each in part.operations)


@pytest.mark.parametrize("traced_before", [False, True])
def test_unnamed_layers_have_costs_of_their_own(traced_before: bool, strategy: Any) -> None:
    keras.backend.clear_session()
    x = np.ones((BATCH, 8), np.float32)
    with strategy.scope():
        blocks = [keras.Sequential([keras.layers.Dense(16), keras.layers.Dense(4)]) for _ in range(2)]
        model = keras.Sequential([keras.Input((8,)), *blocks])
        model.compile("sgd", "mse")
        if traced_before:
            model.predict(x, batch_size=BATCH // 2, verbose=0)
        model.fit(x, x[:, :4], batch_size=BATCH, verbose=0)
    [part] = model.ipu_report().parts
    found = {each.name.rpartition("/")[2]: each.forward_flops for each in layer_costs(part)}
    sizes = {"dense": (8, 16), "dense_1": (16, 4), "dense_2": (4, 16), "dense_3": (16, 4)}
    for name, (inputs, units) in sizes.items():
        assert found[name] == 2 * inputs * units * BATCH + units * BATCH


def test_a_report_has_the_models_name(strategy: Any) -> None:
    model = trained(strategy)
    assert model.ipu_report().program == f"{model.name}: train step"


def test_variables_are_weights_and_optimizer_state_by_name(strategy: Any) -> None:
    model = trained(strategy)
    [part] = model.ipu_report().parts
    there = [value for value in part.values if value.first == 0]
    found = {value.name: value.bytes for value in there if value.category is Category.WEIGHTS}
    assert found == {weight.path: 4 * int(np.prod(weight.shape)) for weight in model.trainable_variables}
    slots = sum(value.bytes for value in there if value.category is Category.OPTIMIZER)
    assert sum(found.values()) < slots <= sum(found.values()) + 16  # momenta, the number of updates, the rate
    for index, operation in enumerate(part.operations):
        assert operation.total == sum(value.bytes for value in part.alive_at(index)) + operation.inside


def pipelined(stages: int = 2, **options: Any) -> Part:
    """The report on a pipeline of dense layers, two in each stage."""
    x = np.ones((16, 12), np.float32)
    with ipus(stages) as strategy, strategy.scope():
        layers = [keras.layers.Dense(12, activation="tanh") for _ in range(2 * stages)]
        model = keras.Sequential([keras.Input((12,)), *layers])
        model.set_pipeline_stage_assignment([place // 2 for place in range(2 * stages)])
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4, **options)
        model.compile("adam", "mse", steps_per_execution=4)
        model.fit(x, x, batch_size=4, verbose=0)
        [part] = model.ipu_report().parts
    return part


@on_tensorflow
def test_checkpoints_lower_the_peak_of_recomputation() -> None:
    peaks: dict[int | None, int] = {}
    for kept in (None, 3):
        with ipus(2) as strategy, strategy.scope():
            inputs = value = keras.Input((8,))
            with PipelineStage(0):
                for number in range(6):
                    value = RecomputationCheckpoint()(value) if number == kept else value
                    value = keras.layers.Dense(8, activation="tanh")(value)
            with PipelineStage(1):
                model = keras.Model(inputs, keras.layers.Dense(1)(value))
            model.set_pipelining_options(
                gradient_accumulation_steps_per_replica=4,
                recomputation_mode=RecomputationMode.RecomputeAndBackpropagateInterleaved,
            )
            model.compile("sgd", "mse", steps_per_execution=4)
            model.fit(np.ones((4000, 8)), np.ones((4000, 1)), batch_size=1000, verbose=0)
            [part] = model.ipu_report().parts
            peaks[kept] = part.pipeline_peak
    one = 1000 * 8 * 4  # bytes of an activation
    # Instead of seven activations, of the input and of one part; a checkpoint is kept for three micro-batches.
    assert peaks[None] - peaks[3] > 0.9 * one


@on_tensorflow
def test_the_stages_of_a_pipeline_add_up_to_the_whole() -> None:
    part = pipelined()
    ticks = over_ticks(part)
    there: dict[str, list[tuple[Category, int]]] = {}
    for stage in part.stages:
        for value in stage.values:
            there.setdefault(value.name, []).append((value.category, value.bytes))
    owned = (Category.WEIGHTS, Category.OPTIMIZER, Category.ACCUMULATORS)
    whole = [value for value in part.values if value.first == 0 and value.category in owned]
    assert {value.category for value in whole} == set(owned)
    for value in whole:
        held = there[value.name]
        assert set(held) == {(value.category, value.bytes)}
        assert len(held) == 1 or value.name.endswith("learning_rate"), value  # what no stage owns each may have
    assert part.pipeline is not None and len(ticks.operations) == part.pipeline.ticks
    for tick, operation in enumerate(ticks.operations):
        assert operation.total == sum(stage.totals[tick] for stage in part.stages) == part.pipeline_totals[tick]
        assert operation.total == sum(value.bytes for value in ticks.alive_at(tick))
        assert operation.live[Category.STASHES] == sum(stage.stashes[tick] for stage in part.stages)
    assert ticks.peak == part.pipeline_peak <= sum(stage.peak for stage in part.stages)
    assert part.stages[0].peak == part.stages[0].totals[part.stages[0].peak_tick]
    of_pva = opened(Report("train step", 3, (part,))).compilation
    ipus = 3 * len(part.stages)
    assert (of_pva.target.numIPUs, of_pva.target.numTiles, of_pva.target.numReplicas) == (ipus, ipus, 3)
    peaks = [ipu.tiles[0].memory.total.includingGaps for ipu in of_pva.ipus]
    assert peaks == [stage.peak for stage in part.stages] * 3
    always = [tile.memory.alwaysLiveBytes for tile in of_pva.tiles]
    assert always == [sum(value.bytes for value in stage.values) for stage in part.stages] * 3
    variables = [of_pva.alwaysLiveVariablesForTile(tile) for tile in range(ipus)]
    assert [sum(each.size for each in found) for found in variables] == always
    for step in of_pva.livenessProgramSteps:
        each = [step.notAlwaysLiveMemoryForTile(tile).bytes for tile in range(len(part.stages))]
        assert sum(each) == step.notAlwaysLiveMemory.bytes
    with pytest.raises(IndexError, match=f"wanted 0 to {ipus - 1}"):
        of_pva.alwaysLiveVariablesForTile(ipus)


@on_tensorflow
def test_recomputation_lowers_the_stashes_of_a_pipeline() -> None:
    mode = ipu.pipelining_ops.RecomputationMode.RecomputeAndBackpropagateInterleaved
    schedule = ipu.pipelining_ops.PipelineSchedule.Grouped
    options: list[dict[str, Any]] = [{}, {"recomputation_mode": mode}]
    without, kept = (pipelined(pipeline_schedule=schedule, **o) for o in options)
    assert max(kept.stages[0].stashes) < max(without.stages[0].stashes)
    assert kept.pipeline_peak < without.pipeline_peak


def test_the_report_is_that_of_the_model_and_its_last_program(strategy: Any) -> None:
    model, other = trained(strategy), trained(strategy)
    other.evaluate(np.ones((BATCH, 8, 8, 3), np.float32), np.ones((BATCH, 1), np.float32), verbose=0)
    trained_report = model.ipu_report()
    assert any(value.category is Category.OPTIMIZER for value in trained_report.parts[0].values)
    evaluated = other.ipu_report()
    assert not any(value.category is Category.OPTIMIZER for value in evaluated.parts[0].values)
    assert evaluated == ipu.reports.last()


def test_times_are_measured_and_say_so(strategy: Any) -> None:
    report = trained(strategy).ipu_report()
    times = report.measured
    assert times is not None and not times.loaded
    assert (times.executions, times.steps) == (1, 4)
    spent = [times.front_end_seconds, *(times.seconds_of(what) for what in ("trace", "lower", "compile"))]
    assert all(seconds > 0 for seconds in spent)
    assert sum(spent[1:]) < times.seconds
    text = str(report)
    assert "measured on this machine" in text and "not from the executable cache" in text
    assert "eyes" in text and "4 steps" in text
    assert report._repr_html_().startswith("<pre")


def test_without_an_execution_there_is_no_report(strategy: Any) -> None:
    model = trained(strategy)
    model.compile("sgd", "mse")
    with pytest.raises(LookupError, match="Call fit, evaluate or predict first"):
        model.ipu_report()


def test_stock_models_have_no_reports(strategy: Any) -> None:
    assert not hasattr(keras.Sequential([keras.layers.Dense(1)]), "ipu_report")


def dense(strategy: Any) -> keras.Model:
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    return model


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why each program that was compiled was compiled again; "" for the first."""
    lines = [record.getMessage() for record in caplog.records if record.name == "ipu_tf.compilation"]
    return [line.partition("; again, as ")[2] for line in lines]


def test_a_training_step_that_is_compiled_again_says_what_changed(
    strategy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    x, model = np.ones((24, 6), np.float32), dense(strategy)
    with strategy.scope(), caplog.at_level("INFO", "ipu_tf.compilation"):
        model.fit(x, x[:, :1], batch_size=8, verbose=0)
        model.fit(x, x[:, :1], batch_size=12, verbose=0)
        model.fit({"a": x}["a"], x[:, :1], batch_size=12, verbose=0)
    assert reasons(caplog) == [
        "",
        "x was float32[8, 6] and is float32[12, 6], y was float32[8, 1] and is float32[12, 1]",
    ]


def test_a_remainder_says_that_it_is_one(strategy: Any, caplog: pytest.LogCaptureFixture) -> None:
    x, model = np.ones((20, 6), np.float32), dense(strategy)
    with strategy.scope(), caplog.at_level("INFO", "ipu_tf.compilation"):
        model.fit(x, x[:, :1], batch_size=8, verbose=0)
    said = reasons(caplog)
    assert said[0] == "" and said[1].startswith("batches was absent and is 1 that do not fill a step, x[0] was absent")
