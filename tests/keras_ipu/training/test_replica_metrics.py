"""Metrics of several replicas: they count what stock Keras's count, with and without a remainder. On both backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, metrics, ops

from keras_ipu.stock.compiled_metrics import has_sums
from tests.helpers.device_counts import device_work
from tests.helpers.random_fits import assert_close
from tests.helpers.some_ipus import ipus

BATCH, CLASSES, RATE = 4, 3, 0.1
X = np.random.default_rng(0).normal(size=(48, 5)).astype(np.float32)
LABELS = np.eye(CLASSES, dtype=np.float32)[np.random.default_rng(1).integers(0, CLASSES, 48)]
WEIGHTS = np.random.default_rng(2).uniform(0.2, 3.0, 48).astype(np.float32)


@keras.saving.register_keras_serializable("replica_metrics")
class LargestSoFar(metrics.Metric):
    """The largest prediction so far, and in whole numbers how many batches there were: neither is a mean."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.largest = self.add_weight(name="largest", initializer="zeros")
        self.batches = self.add_weight(name="batches", initializer="zeros", dtype="int32")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.largest.assign(ops.maximum(self.largest, ops.max(y_pred)))
        self.batches.assign(self.batches + 1)

    def result(self) -> dict[str, Any]:
        return {"largest": self.largest + 0, "of_batches": self.batches + 0}  # values: `fit` shows variables late


def plain_metrics() -> list[metrics.Metric]:
    """Returns metrics of several kinds of state: sums, matrices of counts, what is counted in whole numbers."""
    return [
        metrics.CategoricalCrossentropy(name="mean"),
        metrics.Precision(top_k=1, name="precision"),
        metrics.F1Score(average="weighted", name="f1"),
        metrics.OneHotMeanIoU(CLASSES, name="iou"),
        metrics.PearsonCorrelation(name="of_batches"),
    ]


def weighted_metrics() -> list[metrics.Metric]:
    """Returns further ones, for samples with weights."""
    return [
        metrics.RootMeanSquaredError(name="root"),
        metrics.AUC(num_thresholds=9, name="auc"),
        metrics.Recall(thresholds=[0.3, 0.5], name="recall"),
        metrics.R2Score(name="r2"),
        LargestSoFar(name="largest_so_far"),
    ]


def shown(
    samples: int, batch: int, rate: float, options: Callable[[keras.Model], None], every: bool, **compiled: Any
) -> list[Any]:
    """Returns what `fit` with validation data and `evaluate` show of metrics, weighted and not; and the weights."""
    keras.utils.set_random_seed(1)
    hidden = layers.Dense(4, "tanh", kernel_regularizer="l2")
    model = keras.Sequential([keras.Input((5,)), hidden, layers.Dense(CLASSES, "softmax")])
    count = None if every else 2
    given = {"metrics": plain_metrics()[:count], "weighted_metrics": weighted_metrics()[:count]}
    model.compile(keras.optimizers.SGD(rate), "categorical_crossentropy", **given, **compiled)
    options(model)
    data, weights = (X[:samples], LABELS[:samples]), WEIGHTS[:samples]
    checked: dict[str, Any] = {"validation_data": (*data, weights), "validation_batch_size": BATCH}
    history = model.fit(*data, batch, 1, 0, sample_weight=weights, shuffle=False, **checked).history
    evaluated = model.evaluate(*data, BATCH, 0, sample_weight=weights, return_dict=True)
    return [history, evaluated, model.get_weights()]


def without_batch_sizes(found: list[Any]) -> list[Any]:
    """Leaves out what depends on the size of batches in `fit`: there several batches are one of stock Keras's."""
    history, *others = found
    return [{key: value for key, value in history.items() if key[:4] == "val_" or "of_batches" not in key}, *others]


def accumulated(model: keras.Model) -> None:
    """Two micro-batches an update."""
    model.set_gradient_accumulation_options(2, "mean")


def piped(model: keras.Model) -> None:
    """Four micro-batches an update, in two stages."""
    model.set_pipeline_stage_assignment([0, 1])
    model.set_pipelining_options(4, gradient_accumulation_reduction_method="mean")


SPLITS: dict[str, tuple[int, int, int, Callable[[keras.Model], None]]] = {
    "two replicas": (2, 2, 1, lambda model: None),
    "two replicas that accumulate": (2, 2, 2, accumulated),
    "two replicas of two stages": (4, 2, 4, piped),
}
"""By name: IPUs, replicas, steps of an update, and what sets them."""


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64:UserWarning")  # MeanIoU on JAX
@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("two replicas", 21),
        ("two replicas", 3),
        pytest.param("two replicas that accumulate", 27, marks=pytest.mark.slow),
        ("two replicas of two stages", 45),
    ],
)
def test_metrics_of_replicas_count_what_stock_keras_counts(name: str, samples: int) -> None:
    ipu_count, replicas, steps, options = SPLITS[name]
    every = samples == 21  # kinds of metrics, whose programs take long to compile
    with device_work() as stock:
        wanted = shown(samples, BATCH * replicas * steps, RATE, lambda model: None, every)
    with ipus(ipu_count) as strategy, strategy.scope(), device_work() as work:
        found = shown(samples, BATCH, RATE / replicas, options, every, steps_per_execution=steps)
    assert stock.counts.executions == 0 < work.counts.steps
    assert_close(without_batch_sizes(found), without_batch_sizes(wanted))


@keras.saving.register_keras_serializable("replica_metrics")
class Counted(metrics.Metric):
    """The number of batches, a whole one, and whether there was any."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.batches = self.add_variable((), "zeros", "int32", name="batches")
        self.any = self.add_variable((), "zeros", "bool", name="any")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.batches.assign(self.batches + 1)
        self.any.assign(True)

    def result(self) -> Any:
        return ops.where(ops.copy(self.any), ops.copy(self.batches), -1)


@pytest.mark.parametrize(
    ("method", "loss", "batches"),
    [("NONE", 3.4, 3), ("LIST", [2.6, 3.4], [3, 3]), ("SUM", 6.0, 6), ("MEAN", 3.0, 3)],
)
def test_replicas_share_a_remainder_where_a_reduction_method_is_set(method: str, loss: Any, batches: Any) -> None:
    """One replica has 1 and 3, the other 2 and 4; of the remainder, 5, each has one half. The mean of all is 3.

    `Counted` is the user's: what a part of its state would be is not known, so each replica has all of 5.
    """
    x = np.arange(1, 6, dtype=np.float32).reshape(5, 1)
    with ipus(2) as strategy, strategy.scope(), device_work() as work:
        model = keras.Sequential([keras.Input((1,)), layers.Rescaling(1.0)])
        model.set_replication_options(replicated_metric_reduction_method=method)
        model.compile(loss=lambda y, p: p, metrics=[Counted(name="counted")])
        shown = model.evaluate(x, x, 1, 0, return_dict=True)
    assert work.counts.steps == 3
    np.testing.assert_allclose(np.array(shown["loss"], np.float32), loss, rtol=1e-6)
    np.testing.assert_array_equal(np.array(shown["counted"], np.float32), batches)


@pytest.mark.usefixtures("graphcore_rules")
def test_graphcores_rules_show_the_last_replicas_metrics() -> None:
    x = np.arange(1, 5, dtype=np.float32).reshape(4, 1)
    with ipus(2) as strategy, strategy.scope(), device_work() as work:
        model = keras.Sequential([keras.Input((1,)), layers.Rescaling(1.0)])
        model.compile(loss=lambda y, p: p)
        shown = model.evaluate(x, x, 1, 0)
    assert work.counts.steps == 2
    np.testing.assert_allclose(shown, 3.0, rtol=1e-6)


class MeanWithLargest(metrics.Mean):
    """The largest value beside Keras's mean."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.largest = self.add_weight(name="largest", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        super().update_state(y_pred)
        self.largest.assign(ops.maximum(self.largest, ops.max(y_pred)))

    def result(self) -> Any:
        return ops.copy(self.largest)


def shown_of_replicas(replicas: int, method: str, y: Any, x: Any, batch: int, **compiled: Any) -> dict[str, Any]:
    """Returns what `evaluate` shows of a model that predicts its inputs."""
    with ipus(replicas) as strategy, strategy.scope(), device_work() as work:
        model = keras.Sequential([keras.Input((1,)), layers.Rescaling(1.0)])
        model.set_replication_options(replicated_metric_reduction_method=method)
        model.compile(loss=lambda y, p: p, **compiled)
        shown: dict[str, Any] = model.evaluate(x, y, batch, 0, return_dict=True)
    assert work.counts.steps > 0
    return shown


@pytest.mark.parametrize(("method", "largest"), [("NONE", 9.0), ("LIST", [9.0, 9.0]), ("SUM", 18.0), ("MEAN", 9.0)])
def test_every_replica_counts_the_whole_remainder_in_state_that_is_no_sum(method: str, largest: Any) -> None:
    """One replica has 0 to 3, the other 4 to 7; both have all of the remainder, 8 and 9."""
    x = np.arange(10, dtype=np.float32).reshape(10, 1)
    given = [LargestSoFar(name="own"), MeanWithLargest(name="derived")]
    shown = shown_of_replicas(2, method, x, x, 4, metrics=given)
    np.testing.assert_array_equal(np.array(shown["largest"], np.float32), largest)
    np.testing.assert_array_equal(np.array(shown["derived"], np.float32), largest)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64:UserWarning")  # MeanIoU on JAX
def test_every_replica_counts_the_whole_remainder_in_whole_numbers() -> None:
    """Each of four has one batch of class 1; the remainder is one of class 0, which is mistaken for 1."""
    y, x = np.array([[1], [1], [1], [1], [0]], np.float32), np.ones((5, 1), np.float32)
    stock = metrics.MeanIoU(2)
    stock.update_state(y[3:], x[3:])
    shown = shown_of_replicas(4, "MEAN", y, x, 1, metrics=[metrics.MeanIoU(2, name="iou")])
    np.testing.assert_allclose(shown["iou"], stock.result(), rtol=1e-6)


MADE: list[Callable[[], metrics.Metric]] = [
    *(metrics.Sum, metrics.Mean, metrics.R2Score, metrics.F1Score, metrics.FBetaScore, metrics.AUC, metrics.Precision),
    *(metrics.Recall, metrics.TruePositives, metrics.CosineSimilarity, metrics.RootMeanSquaredError),
    *(metrics.CategoricalCrossentropy, metrics.PearsonCorrelation),
    lambda: metrics.SensitivityAtSpecificity(0.5),
    lambda: metrics.OneHotMeanIoU(CLASSES),
    lambda: metrics.MeanMetricWrapper(lambda y, p: p),
]


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64:UserWarning")  # MeanIoU on JAX
@pytest.mark.parametrize("make", MADE)
def test_state_of_kerass_own_metrics_is_known_to_be_sums(make: Callable[[], metrics.Metric]) -> None:
    """On two samples twice all of it is twice what it is on them."""
    metric, states = make(), []
    for _ in range(2):
        metric.update_state(LABELS[:2], LABELS[1:3])
        states.append([np.array(ops.copy(value)) for value in metric.variables])
    assert has_sums(metric)
    for once, twice in zip(*states, strict=True):
        np.testing.assert_allclose(twice, 2 * once, rtol=1e-6)


def test_state_of_other_metrics_is_not_known_to_be_sums() -> None:
    assert not any(has_sums(metric) for metric in (LargestSoFar(), Counted(), MeanWithLargest()))
