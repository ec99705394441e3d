"""Pipeline stages of Keras models: assignment of layers, and that the stages one by one are the model."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from ipu_tf.ipu_strategy import IPUStrategyV1
from keras_ipu import PipelineStage, SequentialLayerPipelineStageAssignment
from keras_ipu.options.model_state import state_of
from keras_ipu.pipeline.graph import symbolic_inputs, trace
from keras_ipu.pipeline.run_checks import is_pipelined, stage_plan
from keras_ipu.pipeline.saved_stages import stages_to_save
from keras_ipu.pipeline.stage_plan import run_stage
from tests.helpers.keras_parity import numbers
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]


class Chain(keras.Model):
    """Layers one after another, each told whether it trains."""

    def __init__(self, parts: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.parts = list(parts)

    def call(self, x: Any, training: bool | None = None) -> Any:
        for part in self.parts:
            x = part(x, training=training) if part._call_has_training_arg else part(x)
        return x


class Untold(Chain):
    """The same with Keras telling the layers, all but the first."""

    def call(self, x: Any, training: bool | None = None) -> Any:
        x = self.parts[0](x, training=training) if self.parts[0]._call_has_training_arg else self.parts[0](x)
        for part in self.parts[1:]:
            x = part(x)
        return x


class TwoInTwoOut(keras.Model):
    """Takes a dict, gives a dict; a layer called twice, one always in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = layers.Dense(4)
        self.noise = layers.GaussianNoise(0.5, seed=3)
        self.last = layers.Dense(2)

    def call(self, inputs: Any) -> Any:
        a, b = self.shared(inputs["a"]), self.shared(inputs["b"])
        return {"sum": self.last(a + b), "noisy": self.noise(a, training=True)}


class ScopedModel(keras.Model):
    """Stages around the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(4)

    def call(self, x: Any) -> Any:
        with PipelineStage(0):
            x = self.dense(x)
        with PipelineStage(1):
            return self.dense(x)


def dense_chain() -> keras.Model:
    return keras.Sequential(
        [layers.Dense(4), layers.BatchNormalization(), layers.Dropout(0.5, seed=1), layers.Dense(4)]
    )


def skips() -> keras.Model:
    a, b = keras.Input((4,)), keras.Input((4,))
    shared = layers.Dense(4)
    x, y = shared(a), shared(b)
    total = layers.Add()([x, y, a])
    total = layers.BatchNormalization()(total)
    product = keras.ops.multiply(total, x)
    return keras.Model([a, b], {"total": layers.Dropout(0.3, seed=2)(total), "product": [product, y]})


def masked() -> keras.Model:
    tokens = keras.Input((5,), dtype="int32")
    x = layers.Embedding(7, 4, mask_zero=True)(tokens)
    return keras.Model(tokens, layers.Dense(2)(layers.LSTM(3)(layers.Dropout(0.1, seed=4)(x))))


def averaging() -> keras.Model:
    a = keras.Input((5, 4))
    return keras.Model(a, layers.Dense(2)(layers.GlobalAveragePooling1D()(layers.Dense(4)(a))))


def given_a_mask() -> keras.Model:
    """A model in a model that is given a mask, of which it has to average the steps that are there."""
    a, mask = keras.Input((5, 4)), keras.Input((5,), dtype="bool")
    return keras.Model([a, mask], layers.Dense(1)(averaging()(a, mask=mask)))


def masked_and_cast_on_entry() -> keras.Model:
    tokens = keras.Input((5,), dtype="int32")
    x = layers.Embedding(7, 4, mask_zero=True, dtype="float16")(tokens)
    return keras.Model(tokens, layers.Dense(1)(averaging()(x)))


def regularized() -> keras.Model:
    a = keras.Input((4,))
    x = layers.Dense(4, kernel_regularizer="l2")(a)
    return keras.Model(a, layers.ActivityRegularization(0.1)(layers.Dense(3)(layers.ActivityRegularization(0.2)(x))))


def nested(kinds: tuple[str, str]) -> keras.Model:
    outer, inner = kinds
    return _of_kind(outer, [layers.Dense(4), _of_kind(inner, _middle()), layers.Dense(4)])


def twice_nested() -> keras.Model:
    inner = _of_kind("functional", [*_middle(), _of_kind("sequential", [layers.Dense(4)])])
    a = keras.Input((4,))
    return keras.Model(a, layers.Add()([inner(inner(a)), inner(a, training=False)]))


def cast_on_entry() -> keras.Model:
    tokens = keras.Input((3,), dtype="int32")
    inner = keras.Model(tokens, layers.Embedding(9, 2)(tokens))
    a = keras.Input((3,))
    return keras.Model(a, layers.Flatten()(inner(keras.ops.abs(a) * 3)))


def mixed_precision() -> keras.Model:
    policy = keras.DTypePolicy("mixed_float16")
    a = keras.Input((4,))
    x = layers.Dense(4, dtype=policy)(a)
    return keras.Model(a, layers.Dense(3, dtype="float32")(x))


def dropout_first() -> keras.Model:
    """Layers that would all be told what Keras takes for the default of the first."""
    a = keras.Input((4,))
    parts = [
        layers.Dropout(0.5, seed=6),
        layers.Dense(4),
        layers.BatchNormalization(),
        layers.GaussianNoise(1.0, seed=7),
    ]
    return keras.Model(a, layers.Dense(2)(Untold(parts)(a)))


def inputs_by_name() -> keras.Model:
    """An inner model whose inputs are a list, called with a dict in another order, and more than it takes."""
    query, key = keras.Input((4,), name="query"), keras.Input((4,), name="key")
    inner = keras.Model([query, key], layers.Subtract()([query, key * 2.0]))
    a = keras.Input((4,))
    given = {"key": layers.Dense(4)(a), "query": layers.Dense(4)(a), "z": a}
    return keras.Model(a, layers.Dense(2)(inner(given)))


def _middle() -> list[Any]:
    return [layers.Dense(4), layers.BatchNormalization(), layers.Dropout(0.5, seed=5)]


def _of_kind(kind: str, parts: list[Any]) -> keras.Model:
    if kind == "sequential":
        return keras.Sequential(parts)
    if kind in ("subclassed", "untold"):
        return Chain(parts) if kind == "subclassed" else Untold(parts)
    x = inputs = keras.Input((4,))
    for part in parts:
        x = part(x)
    return keras.Model(inputs, x)


KINDS = ("functional", "sequential", "subclassed")
NESTINGS = [(outer, inner) for outer in KINDS for inner in (*KINDS, "untold")] + [("untold", "untold")]
X = numbers(6, 4)
MODELS: dict[str, tuple[Callable[[], keras.Model], Any]] = {
    "sequential": (dense_chain, X),
    "skips": (skips, [X, numbers(6, 4, seed=3)]),
    "masked": (masked, np.array([[1, 2, 0, 0, 0], [3, 4, 5, 6, 0]], np.int32)),
    "given a mask": (given_a_mask, [numbers(2, 5, 4), np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]], bool)]),
    "masked and cast on entry": (masked_and_cast_on_entry, np.array([[1, 2, 0, 0, 0], [3, 4, 5, 6, 0]], np.int32)),
    "regularized": (regularized, X),
    "subclassed": (TwoInTwoOut, {"a": X, "b": X + 1}),
    "twice nested": (twice_nested, X),
    "dropout first": (dropout_first, X),
    "inputs by name": (inputs_by_name, X),
    "cast on entry": (cast_on_entry, numbers(6, 3)),
    "mixed precision": (mixed_precision, X),
    **{" in ".join(reversed(kinds)): (functools.partial(nested, kinds), X) for kinds in NESTINGS},
}


def assign(model: keras.Model, stages: Iterator[int]) -> None:
    """Puts the model's calls of layers on the given stages, in order."""
    assignments = model.get_pipeline_stage_assignment()
    fill(assignments, stages)
    model.set_pipeline_stage_assignment(assignments)


def fill(assignments: list[Any], stages: Iterator[int]) -> None:
    """Fills in stages, within inner models too."""
    for each in assignments:
        if each.is_nested_model:
            fill(each.pipeline_stage_assignments, stages)
        else:
            each.pipeline_stage = next(stages)


def by_stages(model: keras.Model, x: Any, training: bool | None) -> tuple[Any, list[Any]]:
    """The outputs and losses of a model run stage by stage."""
    plan = stage_plan(model)
    values = plan.start(x)
    for stage in range(plan.stages):
        values = run_stage(plan, stage, values, training)
    return plan.finish(values), list(model.losses)


@pytest.mark.filterwarnings("ignore:Layer .* does not support masking")  # stock, of a model with a mask
@pytest.mark.parametrize("width", [1, 2, 100])
@pytest.mark.parametrize("name", MODELS)
def test_all_stages_one_by_one_are_the_model(strategy: IPUStrategyV1, name: str, width: int) -> None:
    make, x = MODELS[name]
    with strategy.scope():
        model = make()
        model(x)
        assign(model, (place // width for place in itertools.count()))
    for training in (None, False, True):
        before = [variable.numpy() for variable in model.variables]  # the states of random generators among them
        expected = model(x, training=training)
        losses, after = list(model.losses), [variable.numpy() for variable in model.variables]
        for variable, value in zip(model.variables, before, strict=True):
            variable.assign(value)
        found, found_losses = by_stages(model, x, training)
        keras.tree.assert_same_structure(found, expected)
        for got, wanted in zip(keras.tree.flatten(found), keras.tree.flatten(expected), strict=True):
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=1e-6)
        np.testing.assert_allclose(found_losses, losses, rtol=1e-6)
        for got, wanted in zip(model.variables, after, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_a_stage_gets_what_it_and_later_ones_need(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        a = keras.Input((4,))
        x = layers.Dense(4)(a)
        model = keras.Model(a, layers.Add()([layers.Dense(4)(x), a]))
    assign(model, iter([0, 1, 2]))
    plan = stage_plan(model)
    assert plan.stages == 3
    assert plan.carried == ((0,), (0, 1), (0, 2), (3,))
    assert [(call.layer.name.split("_")[0], call.stage) for call in plan.calls] == [
        ("dense", 0),
        ("dense", 1),
        ("add", 2),
    ]


def test_scopes_assign_stages(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        a = keras.Input(4)
        with PipelineStage(1):
            dense = layers.Dense(4)
        with PipelineStage(0):
            x = dense(a)
        model = keras.Model(a, dense(x))
    assert [each.pipeline_stage for each in model.get_pipeline_stage_assignment()] == [0, 1]
    assert is_pipelined(model)


@pytest.mark.parametrize("built", [False, True])
def test_scopes_within_a_call_assign_stages(strategy: IPUStrategyV1, built: bool) -> None:
    with strategy.scope():
        model = ScopedModel()
        if built:
            model(X)
        assert is_pipelined(model, tf.TensorSpec((6, 4)))
        assert [each.pipeline_stage for each in model.get_pipeline_stage_assignment()] == [0, 1]
        np.testing.assert_allclose(by_stages(model, X, None)[0], model(X), rtol=1e-6)
    model.reset_pipeline_stage_assignment()
    assert not is_pipelined(model, tf.TensorSpec((6, 4)))


def test_a_subclassed_model_without_scopes_is_not_traced(strategy: IPUStrategyV1) -> None:
    class WithPlainTensorFlow(keras.Model):
        def call(self, x: Any) -> Any:
            return tf.nn.relu(x)

    with strategy.scope():
        model = WithPlainTensorFlow()
    assert not is_pipelined(model, tf.TensorSpec((6, 4)))
    assert state_of(model).graph is None


def test_scopes_around_some_layers_only_are_refused(strategy: IPUStrategyV1) -> None:
    text = "All layers of a pipelined model must have an associated pipeline stage. However, dense.* has not been"
    with strategy.scope():
        a = keras.Input((4,))
        with PipelineStage(0):
            x = layers.Dense(4)(a)
        with pytest.raises(ValueError, match=text):
            keras.Model(a, layers.Dense(4)(x))
        with PipelineStage(0):
            chain = Chain([layers.Dense(4)])
        chain.parts.append(layers.Dense(4))
        with pytest.raises(ValueError, match=text):
            chain.build((6, 4))


def test_scopes_around_layers_of_a_sequential(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        with PipelineStage(0):
            first = layers.Dense(4)
        with PipelineStage(1):
            second = layers.Dense(4)
        model = keras.Sequential([keras.Input((4,)), first, second])
        assert is_pipelined(model)
        assert stages_to_save(model.get_pipeline_stage_assignment()) == [0, 1]
        copy = keras.Sequential.from_config(model.get_config())
        assert stages_to_save(copy.get_pipeline_stage_assignment()) == [0, 1]
        model.pop()
        assert stage_plan(model).stages == 1
        model.add(layers.Dense(4, name="outside"))
        with pytest.raises(ValueError, match="must have an associated pipeline stage. However, outside has not been"):
            is_pipelined(model)
        model.reset_pipeline_stage_assignment()
        assert not is_pipelined(model)
        with pytest.raises(RuntimeError, match=r"the preceeding stages \[0\] had no assignments"):
            stage_plan(keras.Sequential([keras.Input((4,)), second]))
        a = keras.Input((4,))
        outer = keras.Model(a, keras.Sequential([second])(copy(a)))
        outer.set_pipeline_stage_assignment(outer.get_pipeline_stage_assignment())
        assert stages_to_save(outer.get_pipeline_stage_assignment()) == [[0, 1], [1]]


def test_where_a_scope_may_be(strategy: IPUStrategyV1) -> None:
    with pytest.raises(RuntimeError, match="PipelineStage may only be used from within an IPUStrategy context."):
        PipelineStage(0).__enter__()
    with strategy.scope():
        with pytest.raises(ValueError, match="-1 is not a valid pipeline stage."):
            PipelineStage(-1).__enter__()
        with PipelineStage(0), pytest.raises(RuntimeError, match="Pipeline stages must not be nested."):
            PipelineStage(1).__enter__()
        with PipelineStage(1):
            pass


def _two(strategy: IPUStrategyV1) -> tuple[keras.Model, list[Any]]:
    with strategy.scope():
        a = keras.Input((4,))
        model = keras.Model(a, layers.Dense(4, name="second")(layers.Dense(4, name="first")(a)))
    return model, model.get_pipeline_stage_assignment()


def _none(assignments: list[Any]) -> Any:
    return None


def _short(assignments: list[Any]) -> Any:
    return assignments[:1]


def _swapped(assignments: list[Any]) -> Any:
    fill(assignments, iter([0, 1]))
    return assignments[::-1]


def _unassigned(assignments: list[Any]) -> Any:
    fill(assignments[:1], iter([0]))
    return assignments


def _backwards(assignments: list[Any]) -> Any:
    fill(assignments, iter([1, 0]))
    return assignments


def _other_class(assignments: list[Any]) -> Any:
    return [SequentialLayerPipelineStageAssignment(each.layer, 0) for each in assignments]


def _other_call(assignments: list[Any]) -> Any:
    fill(assignments, iter([0, 0]))
    return [type(assignments[0])(assignments[0].layer, 4, 0), assignments[1]]


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (_none, "`pipeline_stage_assignment` needs to be a list."),
        (_short, r"The length of the provided `pipeline_stage_assignment` \(1\) does not match .* \(2\)."),
        (_swapped, r"The order of `pipeline_stage_assignment` does not match the post-order .* \(second != first\)."),
        (_unassigned, "Layer second with node_index 0 has not been assigned a pipeline stage in"),
        (_backwards, "Layer second in pipeline stage 0 has a dependency from a pipeline stage which has not yet been"),
        (
            _other_class,
            "for layer first in .* must be an instance of `FunctionalLayerPipelineStageAssignment`. Instead",
        ),
        (_other_call, r"Layer first has 1 invocation\(s\) in the graph, but .* for node_index 4."),
    ],
)
def test_assignments_that_do_not_fit_are_refused(
    strategy: IPUStrategyV1, spoil: Callable[[list[Any]], Any], text: str
) -> None:
    model, assignments = _two(strategy)
    with pytest.raises(ValueError, match=text):
        model.set_pipeline_stage_assignment(spoil(assignments))
    assert not is_pipelined(model)


def test_every_stage_needs_a_layer(strategy: IPUStrategyV1) -> None:
    model, assignments = _two(strategy)
    fill(assignments, iter([0, 3]))
    model.set_pipeline_stage_assignment(assignments)
    text = (
        r"The highest stage with an assignment is stage 3, however the preceeding stages \[1, 2\] had no assignments."
    )
    with pytest.raises(RuntimeError, match=text):
        stage_plan(model)
    with strategy.scope(), pytest.raises(RuntimeError, match=text):
        model.predict(X, batch_size=3, verbose=0)


@pytest.mark.parametrize(
    ("stages", "text"),
    [
        ([1, 2, 3], "The first layer in a pipelined sequential model .*, however it was assigned to 1."),
        ([0, 2, 3], "has been assigned to pipeline stage 2, however the previous layer .* to pipeline stage 0."),
        ([0, 1, 0], "has been assigned to pipeline stage 0, however the previous layer .* to pipeline stage 1."),
        ([0, 1], r"The length of the provided `pipeline_stage_assignment` \(2\) does not match"),
        ([0.0, 1.0, 2.0], "All elements of `pipeline_stage_assignment` must be instances of"),
        ((0, 1, 2), "`pipeline_stage_assignment` needs to be a list."),
    ],
)
def test_stages_that_a_sequential_cannot_have(strategy: IPUStrategyV1, stages: Any, text: str) -> None:
    with strategy.scope():
        model = keras.Sequential([layers.Dense(4) for _ in range(3)])
    with pytest.raises(ValueError, match=text):
        model.set_pipeline_stage_assignment(stages)


def test_a_sequential_takes_numbers_and_notices_changed_layers(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        model = keras.Sequential([layers.Dense(4), layers.Dense(4)])
        stages: list[Any] = [0, 1]
        model.set_pipeline_stage_assignment(stages)
        assert [type(each) for each in stages] == [SequentialLayerPipelineStageAssignment] * 2
        assert model._pipeline_stage_assignment_valid
        model.add(layers.Dense(4))
        assert not model._pipeline_stage_assignment_valid
        model.build((6, 4))
        with pytest.raises(RuntimeError, match="pipeline stage assignments for model .* are no longer valid: .*layers"):
            stage_plan(model)
        model.pop()
        model.set_pipeline_stage_assignment([0, 0])
        assert stage_plan(model).stages == 1


def test_a_model_that_is_not_built_has_no_assignments(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        model = Chain([layers.Dense(4)])
        with pytest.raises(RuntimeError, match="Cannot get pipeline stage assignments for model .* not been built yet"):
            model.get_pipeline_stage_assignment()
        with pytest.raises(RuntimeError, match="Cannot set pipeline stage assignments for model .* not been built yet"):
            model.set_pipeline_stage_assignment([])
        model.build((None, 4))
        assert [each.pipeline_stage for each in model.get_pipeline_stage_assignment()] == [None]
        with pytest.raises(ValueError, match="is not pipelined: none of its layers has a pipeline stage."):
            stage_plan(model)


def test_tracing_again_counts_calls_from_the_start(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        shared = layers.Dense(4)
        model = Chain([shared, shared])
        for shape in ((None, 4), (6, 4)):
            trace(model, symbolic_inputs(model, shape))
            assert [each.node_index for each in model.get_pipeline_stage_assignment()] == [0, 1]


def test_stages_of_inner_models_are_their_defaults_in_outer_ones(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        inner = keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.Dense(4)])
        inner.set_pipeline_stage_assignment([0, 1])
        outer = _of_kind("functional", [layers.Dense(4), inner])
    assert stages_to_save(outer.get_pipeline_stage_assignment()) == [None, [0, 1]]


def test_each_call_of_an_inner_model_has_stages_of_its_own(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        innermost = keras.Sequential([keras.Input((4,)), layers.Dense(4)])
        innermost.set_pipeline_stage_assignment([0])
        inner = _of_kind("functional", [innermost])
        assign(inner, iter([0]))
        a = keras.Input((4,))
        model = keras.Model(a, inner(inner(a)))
    assign(model, iter([0, 1]))
    assert stages_to_save(model.get_pipeline_stage_assignment()) == [[[0]], [[1]]]
    assert stages_to_save(inner.get_pipeline_stage_assignment()) == [[0]]
    assert stages_to_save(innermost.get_pipeline_stage_assignment()) == [0]


def test_the_summary(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
        x = layers.Concatenate(name="join")([a, b])
        inner = keras.Sequential([keras.Input((8,)), layers.Dense(4, name="inside")], name="inner")
        model = keras.Model([a, b], layers.Dense(4, name="last")(inner(x)), name="outer")
    assign(model, itertools.count())
    lines: list[str] = []
    model.print_pipeline_stage_assignment_summary(line_length=60, print_fn=lines.append)
    assert lines == [
        'Model: "outer"',
        "_" * 60,
        "Layer (type) (node inde Input Layers            Pipeline Stage".ljust(60)[:60],
        "=" * 60,
        "join (Concatenate) (0)  a                       0           ",
        "                        b                                   ",
        "=" * 60,
        'Nested Model: "inner"',
        "-" * 60,
        "inside (Dense)                                  1           ",
        "=" * 60,
        "last (Dense) (0)        inner                   2           ",
        "=" * 60,
    ]


def test_a_sequential_model_is_built_by_its_first_batch(strategy: IPUStrategyV1) -> None:
    x = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    with strategy.scope():
        model = keras.Sequential([layers.Dense(4, "relu"), layers.Dense(2)])
        model.set_pipeline_stage_assignment([0, 0])
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        model.compile("sgd", "mse", steps_per_execution=4)
        model.fit(x, x[:, :2], batch_size=4, epochs=2, verbose=0)
        model.compile("sgd", "mse", steps_per_execution=2)
        assert model.predict(x, batch_size=8, verbose=0).shape == (16, 2)
    assert is_pipelined(model)
    assert model.input_shape == (None, 3)
