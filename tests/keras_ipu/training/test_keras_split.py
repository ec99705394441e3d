"""Keras models split over replicas, micro-batches, stages and executions: the numbers of plain Keras on all samples."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_tf.emulation import EmulationError
from ipu_tf.ops.pipelining_ops import PipelineSchedule
from keras_ipu import PipelineStage
from keras_ipu.parity.report import Difference, difference
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

BATCH, BATCHES, EPOCHS = 4, 96, 2
RTOL = 1e-5
"""Of float32, relative to the largest element of an array: sums of parts are added up in another order."""
SPLITS = [
    # replicas, micro-batches, stages, steps per execution, kind of model
    (1, 4, 1, 8, "sequential"),
    (2, 1, 1, 6, "functional"),
    (2, 4, 2, 12, "sequential"),
    (4, 8, 1, 24, "subclassed"),
    (1, 8, 4, 16, "functional"),
    pytest.param(4, 4, 2, 8, "sequential", marks=pytest.mark.slow),
    pytest.param(1, 4, 2, 8, "functional", marks=pytest.mark.slow),
    (1, 4, 2, 8, "subclassed"),  # whose `x + y` is an operation of a stage, and no layer
]


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.first = keras.layers.Dense(16, activation="tanh")
        self.second = keras.layers.Dense(16, activation="tanh")
        self.last = keras.layers.Dense(5)

    def call(self, x: Any, training: bool = False) -> Any:
        x = self.first(x)
        return self.last(x + self.second(x))


def sequential() -> keras.Model:
    sizes = (16, 16, 8, 5)
    layers = [keras.layers.Dense(n, activation="tanh" if n != 5 else None) for n in sizes]
    return keras.Sequential([keras.Input((20,)), *layers])


def functional() -> keras.Model:
    x = keras.Input((20,))
    first = keras.layers.Dense(16, activation="tanh")(x)
    second = keras.layers.Dense(16, activation="tanh")(first)
    joined = keras.layers.Add()([first, second])
    return keras.Model(x, keras.layers.Dense(5)(joined))


KINDS: dict[str, Callable[[], keras.Model]] = {
    "sequential": sequential,
    "functional": functional,
    "subclassed": Subclassed,
}


class Scaled(keras.losses.Loss):
    """The loss of plain Keras whose gradient is the sum of those of `parts` equal parts of the batch."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self._parts = parts

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return self._parts * keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)


class Norms:
    """An optimizer that adds up the norms of the gradients that it is given."""

    def build(self, variables: Any) -> None:
        super().build(variables)  # type: ignore[misc]
        self.norms = self.add_variable((), name="norms")  # type: ignore[attr-defined]

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        applied = super().apply(grads, trainable_variables)  # type: ignore[misc]
        squares = [keras.ops.sum(keras.ops.square(gradient)) for gradient in grads]
        self.norms.assign_add(keras.ops.sqrt(sum(squares)))
        return applied


class NormsAdamW(Norms, keras.optimizers.AdamW):
    pass


class NormsSGD(Norms, keras.optimizers.SGD):
    pass


def adamw() -> keras.optimizers.Optimizer:
    """AdamW that does not magnify round-off.

    With the default epsilon of 1e-7 plain Keras's own weights differ by up to 1e-5 where the initial ones do by 6e-8;
    with this one by 8e-7.
    """
    schedule = keras.optimizers.schedules.ExponentialDecay(0.02, 4, 0.9)
    return NormsAdamW(schedule, clipnorm=0.3, weight_decay=0.01, epsilon=1e-3)


def momentum() -> keras.optimizers.Optimizer:
    return NormsSGD(0.02, momentum=0.9, global_clipnorm=2.0, weight_decay=0.01)


@functools.cache
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH * BATCHES, 20)).astype(np.float32)
    return x, rng.integers(0, 5, BATCH * BATCHES).astype(np.int32)


def built(kind: str) -> keras.Model:
    keras.utils.set_random_seed(3)
    model = KINDS[kind]()
    model(np.zeros((1, 20), np.float32))
    return model


def stages_for(model: keras.Model, stages: int) -> None:
    assignments = model.get_pipeline_stage_assignment()
    if isinstance(model, keras.Sequential):
        model.set_pipeline_stage_assignment([min(i * stages // len(model.layers), stages - 1) for i in range(4)])
        return
    for index, assignment in enumerate(assignments):
        assignment.pipeline_stage = index * stages // len(assignments)
    model.set_pipeline_stage_assignment(assignments)


def on_device(
    replicas: int,
    count: int,
    stages: int,
    steps: int,
    kind: str,
    make: Callable[[], Any] = adamw,
    method: str = "sum",
    **pipelining: Any,
) -> dict[str, Any]:
    x, y = data()
    with ipus(replicas * stages) as strategy, strategy.scope(), device_work() as work:
        model = built(kind)
        if stages > 1:
            stages_for(model, stages)
            model.set_pipelining_options(
                gradient_accumulation_steps_per_replica=count,
                gradient_accumulation_reduction_method=method,
                **pipelining,
            )
        elif count > 1:
            model.set_gradient_accumulation_options(
                gradient_accumulation_steps_per_replica=count, gradient_accumulation_reduction_method=method
            )
        if replicas > 1:
            model.set_replication_options(replicated_metric_reduction_method="MEAN")
        model.compile(make(), Scaled(1), metrics=["accuracy"], steps_per_execution=steps)
        history = model.fit(x, y, BATCH, EPOCHS, verbose=0, shuffle=False).history
        found = seen(model, history, 1)
    per_replica = BATCHES // replicas
    assert work.counts.steps == (EPOCHS + 1) * per_replica
    assert work.counts.replicas >= replicas
    return found


def plain(parts: int, kind: str, make: Callable[[], Any] = adamw, scale: int | None = None) -> dict[str, Any]:
    x, y = data()
    model = built(kind)
    scale = parts if scale is None else scale
    model.compile(make(), Scaled(scale), metrics=["accuracy"])
    history = model.fit(x, y, BATCH * parts, EPOCHS, verbose=0, shuffle=False).history
    return seen(model, history, scale)


def seen(model: keras.Model, history: dict[str, Any], scale: int) -> dict[str, Any]:
    """Results of training; the loss as it is without the factor `scale`."""
    norms = getattr(model.optimizer, "norms", None)
    return {
        "weights": model.get_weights(),
        "updates": int(model.optimizer.iterations),
        "predicted": model.predict(data()[0], BATCH, verbose=0),
        "loss": np.array(history["loss"]) / scale,
        "accuracy": np.array(history["accuracy"]),
        "norms": np.array(0.0 if norms is None else float(norms)),
    }


def differences(given: dict[str, Any], wanted: dict[str, Any]) -> list[Difference]:
    """Differences of weights, predictions, losses, metrics and the sum of the gradients' norms."""
    assert given["updates"] == wanted["updates"], (given["updates"], wanted["updates"])
    pairs = enumerate(zip(given["weights"], wanted["weights"], strict=True))
    named = [difference(f"weight {place}", *pair) for place, pair in pairs]
    names = ("predicted", "loss", "accuracy", "norms")
    return named + [difference(name, given[name], wanted[name]) for name in names]


def assert_same(given: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert [each for each in differences(given, wanted) if not each.within(RTOL, 0.0)] == []


@pytest.mark.parametrize(("replicas", "count", "stages", "steps", "kind"), SPLITS)
def test_splitting_a_step_does_not_change_the_numbers(
    replicas: int, count: int, stages: int, steps: int, kind: str
) -> None:
    assert_same(on_device(replicas, count, stages, steps, kind), plain(replicas * count, kind))


@pytest.mark.parametrize("method", ["mean", "running_mean"])
def test_means_over_micro_batches(method: str) -> None:
    assert_same(on_device(2, 4, 1, 8, "sequential", method=method), plain(8, "sequential", scale=2))


def test_steps_per_execution_changes_not_a_bit() -> None:
    runs = [on_device(1, 1, 1, steps, "sequential") for steps in (1, 8, 96)]
    for other in runs[1:]:
        for mine, theirs in zip(other["weights"], runs[0]["weights"], strict=True):
            np.testing.assert_array_equal(mine, theirs)


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "ema": lambda: keras.optimizers.SGD(0.05, use_ema=True, ema_overwrite_frequency=5),
    "adagrad": lambda: keras.optimizers.Adagrad(0.05),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05), initial_scale=64.0),
    "clipvalue": lambda: keras.optimizers.RMSprop(0.01, clipvalue=0.05),
    "global_clipnorm": lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.1),
}


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_kind_of_optimizer_accumulates_exactly(name: str) -> None:
    make = OPTIMIZERS[name]
    assert_same(on_device(2, 4, 1, 8, "sequential", make), plain(8, "sequential", make))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_accumulates_in_float32(policy: str) -> None:
    keras.config.set_dtype_policy(policy)
    try:
        given = on_device(1, 4, 1, 8, "sequential", OPTIMIZERS["sgd"])
        wanted = plain(4, "sequential", OPTIMIZERS["sgd"])
    finally:
        keras.config.set_dtype_policy("float32")
    for mine, theirs in zip(given["weights"], wanted["weights"], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0.05, atol=0.02)


@pytest.mark.parametrize(
    ("method", "wanted"), [("NONE", 4.0), ("SUM", 10.0), ("MEAN", 2.5), ("LIST", [1.0, 2.0, 3.0, 4.0])]
)
def test_what_is_shown_of_every_replicas_metric(method: str, wanted: Any) -> None:
    x = np.repeat(np.arange(1.0, 5.0, dtype=np.float32), 2).reshape(4, 2, 1)  # replica r sees r + 1
    with ipus(4) as strategy, strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Rescaling(1.0)])
        model.set_replication_options(replicated_metric_reduction_method=method)
        model.compile(loss=lambda y, p: p)
        shown = model.evaluate(x.reshape(8, 1), x.reshape(8, 1), batch_size=2, verbose=0)
    np.testing.assert_allclose(np.array(shown, dtype=np.float32), wanted)


@pytest.mark.usefixtures("graphcore_rules")
def test_batches_that_do_not_go_round_are_dropped_and_told(caplog: pytest.LogCaptureFixture) -> None:
    x, y = data()
    with ipus(4) as strategy, strategy.scope(), device_work() as work:
        model = built("sequential")
        model.compile("sgd", Scaled(1))
        history = model.fit(x[:40], y[:40], BATCH, verbose=0)
    assert history.params["steps"] == 2
    assert work.counts.steps == 2
    assert "Dataset of length 10 is being evenly distributed between 4 replicas. The remaining 2 batches" in caplog.text


def test_each_epoch_starts_at_the_first_batch() -> None:
    x = np.arange(10, dtype=np.float32).reshape(10, 1)
    with ipus(4) as strategy, strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(0.0), loss=lambda y, p: p)
        losses = model.fit(x, x, batch_size=1, epochs=3, shuffle=False, verbose=0).history["loss"]
    assert losses[0] == losses[1] == losses[2]


class Signs(keras.optimizers.SGD):
    """Goes by the sign of the gradient of a whole update; of a part of it, that would be something else."""

    def apply_gradients(self, grads_and_vars: Any) -> Any:
        return super().apply_gradients([(tf.sign(gradient), variable) for gradient, variable in grads_and_vars])


def test_an_optimizer_with_its_own_apply_gradients_sees_whole_updates() -> None:
    assert_same(on_device(1, 4, 1, 8, "sequential", lambda: Signs(0.01)), plain(4, "sequential", lambda: Signs(0.01)))


@pytest.mark.usefixtures("graphcore_rules")
@pytest.mark.parametrize(("replicas", "steps"), [(1, 2), (2, 2), (2, 8)])
def test_predict_takes_no_more_batches_than_it_was_told(replicas: int, steps: int) -> None:
    """Eight batches, and executions of up to four steps on each replica."""
    x = np.arange(16, dtype=np.float32).reshape(16, 1)
    with ipus(replicas) as strategy, strategy.scope(), device_work() as work:
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(steps_per_execution=4)
        found = model.predict(x, batch_size=2, steps=steps, verbose=0)
    assert found.ravel().tolist() == x[: 2 * steps].ravel().tolist()
    assert work.counts.steps == steps // replicas


@pytest.mark.usefixtures("graphcore_rules")
def test_too_few_batches_for_the_replicas_are_refused() -> None:
    x, y = data()
    with ipus(4) as strategy, strategy.scope():
        model = built("sequential")
        before = model.get_weights()
        model.compile("sgd", Scaled(1))
        with pytest.raises(ValueError, match="contains 2 items, but all 4 replicas are requested to run"):
            model.fit(x[:8], y[:8], BATCH, verbose=0)
        for mine, theirs in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_accumulation_that_does_not_divide_the_execution_is_refused() -> None:
    x, y = data()
    with ipus(1) as strategy, strategy.scope():
        model = built("sequential")
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=5)
        model.compile("sgd", Scaled(1), steps_per_execution=8)
        with pytest.raises(RuntimeError, match=r"\(set to 8\) is not divisible by `gradient_accumulation_steps_per_"):
            model.fit(x, y, BATCH, verbose=0)


def test_one_batch_does_not_feed_several_replicas_by_graphcores_rules() -> None:
    x, y = data()
    with ipus(2, graphcore_rules=True) as strategy, strategy.scope():
        model = built("sequential")
        model.compile("sgd", Scaled(1))
        for run in (lambda: model.train_on_batch(x[:4], y[:4]), lambda: model.predict_on_batch(x[:4])):
            with pytest.raises(EmulationError, match="2 replicas"):
                run()


def test_a_pipeline_on_too_few_ipus_is_refused() -> None:
    x, _ = data()
    with ipus(1) as strategy, strategy.scope():
        model = built("sequential")
        stages_for(model, 4)
        with pytest.raises(ValueError, match="has 1 IPUs attached, however the current model requires a multiple of 4"):
            model.predict(x, BATCH, verbose=0)


def test_a_layer_with_weights_on_two_ipus_is_refused() -> None:
    """A mapping that puts both of its stages on one IPU is not."""
    with ipus(2) as strategy, strategy.scope():
        shared = keras.layers.Dense(20, name="shared")
        x = keras.Input((20,))
        model = keras.Model(x, shared(keras.layers.Dense(20)(shared(x))))
        assignments = model.get_pipeline_stage_assignment()
        for stage, assignment in zip((0, 0, 1), assignments, strict=True):
            assignment.pipeline_stage = stage
        model.set_pipeline_stage_assignment(assignments)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        model.compile(steps_per_execution=2)
        with pytest.raises(ValueError, match="Layer shared is used by pipeline stages on the IPUs 0 and 1.*same IPU"):
            model.predict(data()[0], BATCH, verbose=0)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4, device_mapping=[0, 0])
        assert model.predict(data()[0], BATCH, verbose=0).shape == (BATCH * BATCHES, 20)


def test_a_mapping_that_is_too_short_is_told_as_stages_without_layers() -> None:
    with ipus(1) as strategy, strategy.scope():
        model = built("functional")
        assignments = model.get_pipeline_stage_assignment()
        for place, assignment in enumerate(assignments):
            assignment.pipeline_stage = 2 * place
        model.set_pipeline_stage_assignment(assignments)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4, device_mapping=[0] * 4)
        with pytest.raises(RuntimeError, match=r"the preceeding stages \[1, 3, 5\] had no assignments"):
            model.predict(data()[0], BATCH, verbose=0)


class StagesInCall(Subclassed):
    def call(self, x: Any, training: bool = False) -> Any:
        with PipelineStage(0):
            x = self.first(x)
        with PipelineStage(1):
            return self.last(self.second(x))


def test_stages_that_only_a_call_names_are_found_before_the_first_run() -> None:
    x, y = data()
    with ipus(1) as strategy, strategy.scope():
        model = StagesInCall()
        model.compile("sgd", Scaled(1))
        with pytest.raises(ValueError, match="requires a multiple of 2 IPUs"):
            model.predict(x, BATCH, verbose=0)
    with ipus(4) as strategy, strategy.scope(), device_work() as work:
        model = StagesInCall()
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        model.compile("sgd", Scaled(1), steps_per_execution=48)
        model.fit(x, y, BATCH, verbose=0)
    assert (int(model.optimizer.iterations), work.counts.steps) == (BATCHES // 2 // 4, BATCHES // 2)


@pytest.mark.parametrize(("schedule", "divisor"), [(0, 4), (1, 2)])
def test_a_count_that_the_schedule_cannot_run_is_refused(schedule: int, divisor: int) -> None:
    x, y = data()
    with ipus(2) as strategy, strategy.scope():
        model = built("sequential")
        before = model.get_weights()
        stages_for(model, 2)
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=3, pipeline_schedule=PipelineSchedule(schedule)
        )
        model.compile("sgd", Scaled(1), steps_per_execution=3)
        wanted = f"iterations of the pipeline must be a multiple of {divisor}, but it is 3"
        with pytest.raises(tf.errors.FailedPreconditionError, match=wanted):
            model.fit(x, y, BATCH, verbose=0)
        for mine, theirs in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_compilation_does_not_grow_with_the_count() -> None:
    """One program, whatever the number of micro-batches: the counters tell, and so does the traced program's size."""
    programs = []
    for count in (2, 48):
        with device_work() as work:
            on_device(1, count, 1, 96, "sequential")
        programs.append(work.counts.programs)
    assert programs[0] == programs[1]
