"""Stages that only a `call` names are found before the first run, whatever the data, and are checked as others are."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest

import keras_ipu
from ipu_tf.ops.pipelining_ops import PipelineSchedule
from keras_ipu import PipelineStage
from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import numbers
from tests.helpers.some_ipus import ipus

# Of generators that end with the epoch.
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
X, Y, BATCH = numbers(32, 3), numbers(32, 1), 4


class Staged(keras.Model):
    """Stages around the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = keras.layers.Dense(4), keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        with PipelineStage(0):
            x = self.first(x)
        with PipelineStage(1):
            return self.last(x)


class Stepping(Staged):
    """The same with a step of its own, which a pipeline has not."""

    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


class Stateful(keras.Model):
    """A `call` that draws, counts and adds a loss of its own, with the scopes of `stage` around its layers."""

    def __init__(self, stage: Callable[[int], contextlib.AbstractContextManager[Any]]) -> None:
        super().__init__()
        self.first, self.last, self.stage = keras.layers.Dense(4), keras.layers.Dense(1), stage
        self.seed = keras.random.SeedGenerator(5)
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x: Any) -> Any:
        self.calls.assign_add(1.0)
        with self.stage(0):
            x = self.first(x) + keras.random.normal((4,), seed=self.seed)
            self.add_loss(keras.ops.mean(keras.ops.square(x)))
        with self.stage(1):
            return self.last(x)


class Batches(keras.utils.PyDataset):
    """The batches in order."""

    def __len__(self) -> int:
        return len(X) // BATCH

    def __getitem__(self, index: int) -> Any:
        return X[index * BATCH :][:BATCH], Y[index * BATCH :][:BATCH]


def generated() -> Iterator[Any]:
    yield from (Batches()[index] for index in range(len(Batches())))


def compiled(
    kind: Callable[[], keras.Model] = Staged, schedule: PipelineSchedule = PipelineSchedule.Grouped
) -> keras.Model:
    keras.utils.set_random_seed(3)
    model = kind()
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=4, pipeline_schedule=schedule)
    model.compile("sgd", "mse", steps_per_execution=4)
    return model


DATA: dict[str, Callable[[], dict[str, Any]]] = {
    "generator": lambda: {"x": generated()},
    "PyDataset": lambda: {"x": Batches()},
}


@pytest.mark.parametrize("data", DATA)
def test_stages_are_found_in_data_whose_shapes_are_known_late(data: str) -> None:
    found = []
    for given in ({"x": X, "y": Y, "batch_size": BATCH}, DATA[data]()):
        with ipus(2) as strategy, strategy.scope(), device_work() as work:
            model = compiled()
            model.fit(**given, shuffle=False, verbose=0)
            assert model._is_pipelined() and int(model.optimizer.iterations) == 2
            found.append([*model.get_weights(), model.predict(**DATA[data](), verbose=0)])
        assert work.counts.steps == 16
    for mine, wanted in zip(found[1], found[0], strict=True):
        np.testing.assert_array_equal(mine, wanted)


def test_a_prediction_finds_stages_too() -> None:
    with ipus(2) as strategy, strategy.scope():
        models = [compiled(schedule=PipelineSchedule.Sequential) for _ in range(2)]
        by_epoch = models[0].predict(generated(), verbose=0)[:BATCH]
        np.testing.assert_array_equal(models[1].predict_on_batch(X[:BATCH]), by_epoch)
        assert all(model._is_pipelined() for model in models)


def test_data_of_another_kind_needs_a_model_that_is_built() -> None:
    with ipus(2) as strategy, strategy.scope():
        model = compiled()
        with pytest.raises(ValueError, match="a model that is not built, and list_iterator. Call the model on a batch"):
            model.predict(iter([X]), verbose=0)


def test_a_model_whose_stages_were_found_is_checked_before_it_runs() -> None:
    with ipus(2) as strategy, strategy.scope(), device_work() as work:
        model = compiled(Stepping)
        with pytest.raises(RuntimeError, match="The function `train_step` for the model .* has been overridden"):
            model.fit(X, Y, BATCH, verbose=0)
    assert work.counts.executions == 0


def fitted(model: keras.Model) -> list[Any]:
    """Weights, variables of random numbers, losses and predictions of a model that trains."""
    model.compile("sgd", "mse", steps_per_execution=4)
    history = model.fit(X, Y, BATCH, shuffle=False, verbose=0).history["loss"]
    return [history, model.evaluate(X, Y, BATCH, verbose=0), model.predict(X, BATCH, verbose=0), *model.get_weights()]


def test_finding_stages_leaves_the_variables_of_a_call_as_they_are_and_its_losses_count() -> None:
    keras.utils.set_random_seed(3)
    with ipus(1) as strategy, strategy.scope():
        model = Stateful(lambda stage: contextlib.nullcontext())
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=4)
        wanted = fitted(model)
    keras.utils.set_random_seed(3)
    with ipus(2) as strategy, strategy.scope():
        model = Stateful(PipelineStage)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        found = fitted(model)
        assert model._is_pipelined()
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_finding_stages_draws_no_numbers_of_stock_keras() -> None:
    keras.utils.set_random_seed(3)
    model = Stateful(lambda stage: contextlib.nullcontext())
    wanted = [model.predict(X, BATCH, verbose=0), *model.get_weights()]
    keras.utils.set_random_seed(3)
    with ipus(2) as strategy, strategy.scope():
        model = Stateful(PipelineStage)
        model.set_pipelining_options(pipeline_schedule=PipelineSchedule.Sequential)
        found = [model.predict(X, BATCH, verbose=0), *model.get_weights()]
        assert model._is_pipelined()
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


class Reaching(keras.Model):
    """Stages that the program reaches as attributes of `keras_ipu`, in a `call` alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = keras.layers.Dense(4), keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        with keras_ipu.PipelineStage(0):
            x = self.first(x)
        with keras_ipu.PipelineStage(1):
            return self.last(x)


@pytest.fixture
def nobody_used_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not come to its first `PipelineStage` yet."""
    monkeypatch.delitem(sys.modules, "keras_ipu.pipeline.stage")


OPTIONS: list[dict[str, Any]] = [
    {"gradient_accumulation_steps_per_replica": 4},
    {"device_mapping": [0, 1]},
    {"pipeline_schedule": PipelineSchedule.Sequential},
]


@pytest.mark.usefixtures("nobody_used_stages")
@pytest.mark.parametrize("options", OPTIONS)
def test_options_of_pipelines_say_that_a_call_may_have_stages(options: dict[str, Any]) -> None:
    with ipus(2) as strategy, strategy.scope():
        model = Reaching()
        model.set_pipelining_options(**options)
        model.compile(steps_per_execution=4)
        model.predict(X, BATCH, verbose=0)
        assert model._is_pipelined()


@pytest.mark.usefixtures("nobody_used_stages")
@pytest.mark.parametrize("samples", [len(X), BATCH - 1])
def test_a_pipeline_that_nobody_knew_of_is_refused_where_its_step_is_traced(samples: int) -> None:
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        model = Reaching()
        model.compile("sgd", "mse")
        with pytest.raises(ValueError, match=r"enters `PipelineStage` scopes .* `from keras_ipu import PipelineStage`"):
            model.fit(X[:samples], Y[:samples], BATCH, verbose=0)
    assert work.counts.executions == 0


STAGES: list[tuple[Any, type[Exception], str]] = [
    (-1, ValueError, "`pipeline_stage` must be an integer of at least 0. Received: -1"),
    (0.5, TypeError, r"Received: 0\.5 \(of type float\)"),
    ("1", TypeError, r"Received: '1' \(of type str\)"),
]


@pytest.mark.parametrize(("stage", "error", "text"), STAGES)
def test_stages_that_there_are_not_are_refused(stage: Any, error: type[Exception], text: str) -> None:
    with ipus(1) as strategy, strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        for kind in (model, keras.Model(model.inputs, model.outputs)):
            (assignment,) = kind.get_pipeline_stage_assignment()
            with pytest.raises(error, match=text):
                assignment.pipeline_stage = stage


def test_stages_may_be_numbers_of_numpy() -> None:
    with ipus(2) as strategy, strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)])
        model.set_pipeline_stage_assignment(list(np.arange(2)))
        stages = [each.pipeline_stage for each in model.get_pipeline_stage_assignment()]
    assert stages == [0, 1] and {type(stage) for stage in stages} == {int}
