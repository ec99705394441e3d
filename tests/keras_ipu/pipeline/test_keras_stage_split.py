"""Stages of Keras models by cost: estimates, balance, given stages, and the printed report.

Run with Keras on TensorFlow here, on JAX by `test_keras_on_jax.py`.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from ipu_tf.ops.pipelining_ops import PipelineSchedule
from ipu_tf.pipeline import SplitError
from keras_ipu.options.model_state import options_of
from keras_ipu.pipeline import split_by_cost
from keras_ipu.pipeline.call_costs import call_costs
from keras_ipu.pipeline.split_by_cost import one_stage_plan
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]

BATCH = 4


def flops_of(strategy: Any, shape: tuple[int, ...], layer: Any) -> float:
    """The estimate for a model of one layer."""
    with strategy.scope():
        model = keras.Sequential([keras.Input(shape), layer])
    [cost], _ = call_costs(one_stage_plan(model), BATCH)
    return cost.flops


@pytest.mark.parametrize(
    ("shape", "make", "products"),
    [
        ((8,), lambda: layers.Dense(16, use_bias=False), 8 * 16),
        ((5, 8), lambda: layers.Dense(16, use_bias=False), 5 * 8 * 16),
        ((5, 8), lambda: layers.EinsumDense("abc,cd->abd", (5, 16)), 5 * 8 * 16),
        ((9, 9, 6), lambda: layers.Conv2D(4, 3, use_bias=False), 7 * 7 * 4 * 9 * 6),
        ((9, 9, 6), lambda: layers.Conv2D(4, 3, groups=2, use_bias=False), 7 * 7 * 4 * 9 * 3),
        ((9, 9, 6), lambda: layers.Conv2D(4, 3, strides=2, use_bias=False), 4 * 4 * 4 * 9 * 6),
        ((9, 9, 6), lambda: layers.DepthwiseConv2D(3, use_bias=False), 7 * 7 * 6 * 9),
        ((7, 7, 6), lambda: layers.Conv2DTranspose(4, 3, use_bias=False), 7 * 7 * 6 * 9 * 4),
        ((9, 6), lambda: layers.Conv1D(4, 3, use_bias=False), 7 * 4 * 3 * 6),
        ((10, 8), lambda: layers.LSTM(16, use_bias=False), 10 * 4 * 16 * (8 + 16)),
    ],
)
def test_products_are_counted(strategy: Any, shape: tuple[int, ...], make: Any, products: int) -> None:
    counted = flops_of(strategy, shape, make())
    assert 2 * BATCH * products <= counted <= 2.3 * BATCH * products


def test_attention_counts_its_scores(strategy: Any) -> None:
    length, width, heads = 64, 16, 2
    with strategy.scope():
        inputs = keras.Input((length, width))
        model = keras.Model(inputs, layers.MultiHeadAttention(heads, width // heads)(inputs, inputs))
    [cost], _ = call_costs(one_stage_plan(model), BATCH)
    products = 4 * length * width * width + 2 * length * length * width
    assert 2 * BATCH * products <= cost.flops <= 2.4 * BATCH * products


class Positions(layers.Layer):
    """Adds what it has learnt of each of 48 positions."""

    def build(self, shape: Any) -> None:
        self.table = self.add_weight(shape=(48, shape[-1]))

    def call(self, x: Any) -> Any:
        length = keras.ops.shape(x)[1]
        if not isinstance(length, int):
            return x
        assert length <= 48, f"{length} positions of 48"
        return x + self.table[:length]


def test_a_length_left_open_is_one_that_the_model_takes(strategy: Any) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.Input((None, 8)), Positions(), layers.Dense(16, use_bias=False)])
        impatient = keras.Sequential([keras.Input((None, 8)), layers.Lambda(lambda x: x, name="impatient")])
    costs, _ = call_costs(one_stage_plan(model), BATCH)
    assert costs[1].flops == 2 * BATCH * 32 * 8 * 16
    impatient.layers[0].function = lambda x: 1 / 0
    with pytest.raises(ZeroDivisionError):
        call_costs(one_stage_plan(impatient), BATCH)


def uneven(strategy: Any) -> Any:
    """Eight layers, of which the first few cost nearly everything."""
    with strategy.scope():
        inputs = keras.Input((32,))
        x = inputs
        for units in (256, 256, 256, 16, 16, 16, 16, 4):
            x = layers.Dense(units, activation="relu")(x)
        return keras.Model(inputs, x)


def stages_of(model: Any) -> list[int]:
    return [each.pipeline_stage for each in model.get_pipeline_stage_assignment()]


def dearest(model: Any, stages: list[int]) -> float:
    """The largest share of the operations that a stage has."""
    costs, _ = call_costs(one_stage_plan(model), 32)
    sums = np.bincount(stages, weights=[cost.flops for cost in costs])
    return float(sums.max() / sums.sum())


def test_stages_are_balanced_and_explained(strategy: Any) -> None:
    model = uneven(strategy)
    told: list[str] = []
    model.split_into_pipeline_stages(3, print_fn=told.append)
    found = stages_of(model)
    assert found == sorted(found) and set(found) == {0, 1, 2}
    assert dearest(model, found) < 0.75 * dearest(model, [0, 0, 0, 1, 1, 1, 2, 2])
    [text] = told
    for layer in model.layers[1:]:
        assert layer.name in text
    assert "FLOPs" in text and "Stage 1 starts with" in text


def test_time_comes_first_and_memory_where_it_binds(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of many weights and no operations takes none of the stages from the layers that compute."""
    with strategy.scope():
        inputs = keras.Input((16,), dtype="int32")
        x = layers.Embedding(5000, 32)(inputs)
        for _ in range(4):
            x = layers.Dense(32)(x)
        model = keras.Model(inputs, x)

    def split() -> tuple[list[int], str]:
        told: list[str] = []
        model.split_into_pipeline_stages(4, print_fn=told.append)
        return stages_of(model), told[0]

    stages, text = split()
    assert stages == [0, 0, 1, 2, 3]
    assert "Cost is the FLOPs, in proportion to the mean stage. Every stage is within 897.0 MiB." in text
    monkeypatch.setattr(split_by_cost, "IPU_BYTES", 2_000_000)
    stages, text = split()
    assert stages[:2] == [0, 1] and "Memory binds" in text
    monkeypatch.setattr(split_by_cost, "IPU_BYTES", 1000)
    stages, text = split()
    assert stages[:2] == [0, 1]
    assert "Cost is the bytes, in proportion to the mean stage. No split keeps every stage within 1000 B." in text


@pytest.mark.parametrize("kind", ["numbers", "assignments"])
def test_given_stages_stay(strategy: Any, kind: str) -> None:
    model = uneven(strategy)
    given: list[Any] = [None] * 8
    given[1], given[6] = 0, 2
    if kind == "assignments":
        wanted, given = given, model.get_pipeline_stage_assignment()
        for assignment, stage in zip(given, wanted, strict=True):
            assignment.pipeline_stage = stage
    told: list[str] = []
    model.split_into_pipeline_stages(3, given, print_fn=told.append)
    found = stages_of(model)
    assert found[:2] == [0, 0] and found[6:] == [2, 2]
    assert told[0].count("(pinned)") == 2


def test_a_shared_layer_stays_whole(strategy: Any) -> None:
    with strategy.scope():
        inputs = keras.Input((8,))
        shared = layers.Dense(8)
        x = shared(layers.Dense(8)(inputs))
        x = shared(layers.Dense(8)(x))
        model = keras.Model(inputs, layers.Dense(2)(layers.Dense(8)(x)))
    model.split_into_pipeline_stages(3, print_fn=None)
    found = stages_of(model)
    assert found[1] == found[2] == found[3]
    with pytest.raises(SplitError, match="have to be in one stage, but are put on stages .0, 1."):
        model.split_into_pipeline_stages(3, [None, 0, None, 1, None, None], print_fn=None)


def test_a_layer_called_at_both_ends_is_named_where_no_split_is_left(strategy: Any) -> None:
    with strategy.scope():
        inputs = keras.Input((6,), dtype="int32")
        table = layers.ReversibleEmbedding(20, 8)
        x = layers.Dense(8)(layers.Dense(8)(table(inputs)))
        model = keras.Model(inputs, table(x, reverse=True))
    with pytest.raises(SplitError, match="'reversible_embed.* is called first and .* last of 4 layers"):
        model.split_into_pipeline_stages(2, print_fn=None)


def test_a_table_at_both_ends_is_on_one_ipu(strategy: Any) -> None:
    with strategy.scope():
        inputs = keras.Input((6,), dtype="int32")
        table = layers.ReversibleEmbedding(20, 32)
        x = table(inputs)
        for _ in range(4):
            x = layers.Dense(32)(x)
        model = keras.Model(inputs, table(x, reverse=True))
    told: list[str] = []
    model.split_into_pipeline_stages(4, print_fn=told.append)
    stages = stages_of(model)
    assert stages[0] == 0 and stages[-1] == 3 and stages == sorted(stages) and set(stages) == {0, 1, 2, 3}
    assert options_of(model).pipelining_device_mapping == (0, 1, 2, 0)
    assert "Stages 0 and 3 share variables and are on one IPU: device_mapping=[0, 1, 2, 0]." in told[0]
    assert "mean IPU" in told[0] and "IPU 1 starts with" in told[0]
    model.split_into_pipeline_stages(3, print_fn=None)  # the mapping of four stages is no wish for three
    assert options_of(model).pipelining_device_mapping == (0, 1, 0)
    model.set_pipelining_options(device_mapping=[0, 1, 2, 3])
    with pytest.raises(SplitError, match="have to be in one stage, because calls among them share variables"):
        model.split_into_pipeline_stages(4, print_fn=None)


def test_a_decoder_s_embedding_moves_to_the_encoder_s(strategy: Any) -> None:
    with strategy.scope():
        first, second = keras.Input((6,), dtype="int32"), keras.Input((6,), dtype="int32")
        table = layers.Embedding(20, 16)
        encoded = layers.Dense(16)(layers.Dense(16)(table(first)))
        x = layers.Dense(16)(layers.Dense(16)(layers.Add()([encoded, table(second)])))
        model = keras.Model([first, second], x)
    model.split_into_pipeline_stages(4, print_fn=None)
    stages = {(each.layer.name, each.node_index): each.pipeline_stage for each in model.get_pipeline_stage_assignment()}
    assert stages[table.name, 0] == stages[table.name, 1] == 0
    assert set(stages.values()) == {0, 1, 2, 3} and options_of(model).pipelining_device_mapping is None


def test_variables_on_two_ipus_are_refused_by_the_names_of_their_layers(strategy: Any) -> None:
    class Head(layers.Layer):
        def __init__(self, table: Any) -> None:
            super().__init__(name="head")
            self.table = table

        def call(self, x: Any) -> Any:
            return self.table(x, reverse=True)

    with strategy.scope():
        inputs = keras.Input((6,), dtype="int32")
        table = layers.ReversibleEmbedding(20, 8, name="table")
        model = keras.Model(inputs, Head(table)(layers.Dense(8)(table(inputs))))
        each = model.get_pipeline_stage_assignment()
        for place, assignment in enumerate(each):
            assignment.pipeline_stage = place
        model.set_pipeline_stage_assignment(each)
        model.set_pipelining_options(4)
        model.compile("sgd", "mse", steps_per_execution=4)
        with pytest.raises(ValueError, match="Layers table and head share variables and are used .* IPUs 0 and 2"):
            model.fit(np.zeros((8, 6), np.int32), np.zeros((8, 6, 20)), batch_size=2)


def test_layers_of_inner_models_are_split_too(strategy: Any) -> None:
    with strategy.scope():
        inner = keras.Sequential([keras.Input((64,)), layers.Dense(64), layers.Dense(64), layers.Dense(64)])
        model = keras.Sequential([keras.Input((64,)), layers.Dense(64), inner, layers.Dense(64), layers.Dense(64)])
    model.split_into_pipeline_stages(3, print_fn=None)
    outer = model.get_pipeline_stage_assignment()
    assert [each.pipeline_stage for each in outer[1].pipeline_stage_assignments] == [0, 1, 1]
    with pytest.raises(ValueError, match="cannot be given by one number"):
        model.split_into_pipeline_stages(3, [0, 1, 1, 2], print_fn=None)


def test_numbers_are_those_of_the_plain_model(strategy: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(48, 32)).astype(np.float32), rng.normal(size=(48, 4)).astype(np.float32)

    def trained(split: bool) -> list[np.ndarray]:
        keras.utils.set_random_seed(3)
        model = uneven(strategy)
        if split:
            model.split_into_pipeline_stages(3, print_fn=None)
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=6, device_mapping=[0, 0, 0])
        else:
            model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=6)
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", steps_per_execution=6)
        losses = model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0).history["loss"]
        return [np.asarray(losses), *model.get_weights()]

    for plain, pipelined in zip(trained(False), trained(True), strict=True):
        np.testing.assert_allclose(pipelined, plain, rtol=1e-5, atol=1e-6)


def test_what_cannot_be_split(strategy: Any) -> None:
    with strategy.scope():
        unbuilt = keras.Sequential([layers.Dense(4), layers.Dense(4)])
    with pytest.raises(RuntimeError, match="before it is built"):
        unbuilt.split_into_pipeline_stages(2)
    with pytest.raises(SplitError, match="9 stages need at least as many layers"):
        uneven(strategy).split_into_pipeline_stages(9)
    with pytest.raises(ValueError, match="does not match the number of layers in the graph"):
        uneven(strategy).split_into_pipeline_stages(2, [0, None])


def test_the_report_of_a_model(strategy: Any) -> None:
    model = uneven(strategy)
    told: list[str] = []
    with pytest.raises(ValueError, match="is not pipelined"):
        model.print_pipeline_stage_report()
    model.split_into_pipeline_stages(3, print_fn=None)
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=12)
    model.print_pipeline_stage_report(micro_batch_size=4, print_fn=told.append)
    rows = told[0].splitlines()
    assert rows[0].split() == [
        *("stage", "IPU", "layers", "parameters", "FLOPs", "stashed", "recomputed", "resident", "activations", "peak")
    ]
    assert [row.split()[0] for row in rows[1:4]] == ["0", "1", "2"]
    assert sum(int(row.split()[2]) for row in rows[1:4]) == 8
    assert "grouped" in told[0]
    with pytest.raises(ValueError, match="must be a multiple of 6, but it is 7"):
        model.print_pipeline_stage_report(gradient_accumulation_steps_per_replica=7)


def test_nothing_runs_to_estimate(strategy: Any) -> None:
    model = uneven(strategy)
    before = [w.numpy() for w in map(tf.convert_to_tensor, model.weights)]
    call_costs(one_stage_plan(model), BATCH)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"pipeline_schedule": 1}, TypeError, "not a member of the PipelineSchedule enumeration"),
        ({"recomputation_mode": "Auto"}, TypeError, "not a member of the RecomputationMode enumeration"),
        ({"continuous_weight_updates": True}, NotImplementedError, "Continuous weight updates are currently not"),
        ({"device_mapping": [0, 0]}, ValueError, "Each stage must be mapped to an IPU: 2 mappings != 3 stages"),
        (
            {"pipeline_schedule": PipelineSchedule.Interleaved, "device_mapping": [0, 0, 0]},
            NotImplementedError,
            "The pipelining schedule 'Interleaved' does not currently support multiple pipeline stages",
        ),
        (
            {"replicated_optimizer_state_sharding": True, "offload_weight_update_variables": False},
            ValueError,
            "optimizer state must be offloaded",
        ),
    ],
)
def test_options_of_a_pipeline_are_checked_before_it_runs(
    strategy: Any, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    model = uneven(strategy)
    model.split_into_pipeline_stages(3, print_fn=None)
    given: dict[str, Any] = {"device_mapping": [0, 0, 0], **options}
    with device_work() as work, pytest.raises(error, match=text):
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=6, **given)
        model.compile("sgd", "mse", steps_per_execution=6)
        model.fit(np.zeros((24, 32), np.float32), np.zeros((24, 4), np.float32), batch_size=4, verbose=0)
    assert work.counts.executions == 0


def test_the_timetable_s_stages_last_as_long_as_their_operations(strategy: Any) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.Input((8,)), layers.Dense(30, use_bias=False), layers.Dense(4, use_bias=False)])
        with pytest.raises(ValueError, match="is not pipelined"):
            model.pipeline_timetable()
        model.set_pipeline_stage_assignment([0, 1])
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    picture = model.pipeline_timetable()
    assert picture.timetable.micro_batches == 4
    assert picture.times is not None
    assert [stage.forward for stage in picture.times] == pytest.approx([4 / 3, 2 / 3])
    assert [stage.backward for stage in picture.times] == pytest.approx([8 / 3, 4 / 3])
    assert model.pipeline_timetable(gradient_accumulation_steps_per_replica=8).timetable.micro_batches == 8
    assert "stage 1" in picture._repr_html_()
