"""One training step of every layer with weights or state, every loss, optimizer and metric: stock Keras and device."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, losses, metrics, optimizers

from tests.helpers.device_counts import device_work
from tests.helpers.keras_layer_cases import BATCH, CASES, DRAWS, INPUTS, LayerCase
from tests.helpers.keras_layers_left_out import DRAWING_LAYERS, LEFT_OUT_LAYERS, STATELESS_LAYERS, WARPING_LAYERS
from tests.helpers.keras_parity import assert_same_numbers, integers, ipu_scope, numbers
from tests.helpers.lowering_parity import assert_close
from tests.helpers.some_ipus import ipus

RTOL = 1e-5
ROUND_OFF = 1e-7
"""Arrays of smaller numbers only are taken for zeros, such as what attention's keys learn of their bias."""
Scope = contextlib.AbstractContextManager[Any]


@dataclasses.dataclass(frozen=True)
class Stepped:
    """Observations of a training run.

    Attributes:
        logs: losses and metrics by name, one value an epoch.
        variables: by the name of the case that they belong to.
    """

    logs: dict[str, list[float]]
    variables: dict[str, list[np.ndarray]]


def both_sides(run: Callable[[Scope], Stepped], steps: int = 1) -> tuple[Stepped, Stepped]:
    """Returns the results of `run` on the device, which ran so many steps, and on stock Keras."""
    found = []
    with ipus(1):
        for scope in (ipu_scope(), contextlib.nullcontext()):
            keras.utils.clear_session()
            keras.utils.set_random_seed(1)
            with device_work() as work:
                found.append(run(scope))
            assert work.counts.steps == (steps if not found[1:] else 0)
    return found[0], found[1]


def assert_same_arrays(found: Iterable[np.ndarray], wanted: Iterable[np.ndarray], rtol: float = RTOL) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        if np.abs(theirs).max(initial=0) < ROUND_OFF:
            assert np.abs(mine).max(initial=0) < ROUND_OFF
        else:
            assert_close(mine, theirs, rtol)


def public(module: ModuleType, kind: type) -> dict[str, type]:
    """The classes of a module of Keras's API that are a `kind`, by their own names: aliases count once."""
    return {each.__name__: each for each in vars(module).values() if inspect.isclass(each) and issubclass(each, kind)}


# Layers


@functools.cache
def layer_group(group: str) -> tuple[Stepped, Stepped]:
    """One step of a model with all layers of a group, each with an output and a loss of its own."""
    cases = [case for case in CASES if case.group == group]
    x = INPUTS[group]

    def run(scope: Scope) -> Stepped:
        with scope:
            given = keras.Input(x.shape[1:], batch_size=len(x), dtype=x.dtype.name)
            made = {case.name: case.make() for case in cases}
            called = {case.name: layers.Flatten()(case.call(made[case.name], given)) for case in cases}
            # Layers that draw have nothing to train: what they give trains another one.
            last = functools.partial(layers.Dense, 2) if group in DRAWS else layers.Identity
            outputs = {name: last(name=name)(output) for name, output in called.items()}
            model = keras.Model(given, outputs)
            model.compile(optimizers.SGD(0.5), {case.name: "mse" for case in cases})
        targets = {name: numbers(*output.shape, seed=2) for name, output in outputs.items()}
        logs = model.fit(x, targets, batch_size=BATCH, verbose=0).history
        trained = {name: (*made[name].variables, *model.get_layer(name).variables) for name in made}
        return Stepped(logs, {name: [each.numpy() for each in kept] for name, kept in trained.items()})

    return both_sides(run)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_layer(case: LayerCase) -> None:
    found, wanted = layer_group(case.group)
    log = "loss" if len(wanted.logs) == 1 else f"{case.name}_loss"
    np.testing.assert_allclose(found.logs[log], wanted.logs[log], rtol=RTOL)
    assert wanted.variables[case.name]
    assert_same_arrays(found.variables[case.name], wanted.variables[case.name])


def test_no_layer_is_forgotten() -> None:
    named = [name for case in CASES for name in (case.name, *case.covers)]
    assert len(set(named)) == len(named)
    left_out = [*LEFT_OUT_LAYERS, *STATELESS_LAYERS, *DRAWING_LAYERS, *WARPING_LAYERS]
    every = public(layers, layers.Layer)
    assert set(every) - {*named, *left_out} == set()
    assert {*named, *left_out} - set(every) == set()


@pytest.mark.parametrize("name", STATELESS_LAYERS)
def test_a_layer_that_is_left_out_as_stateless_is(name: str) -> None:
    kinds = [kind for kind in getattr(layers, name).__mro__ if kind not in layers.Layer.__mro__]
    methods = [method for kind in kinds for method in vars(kind).values() if inspect.isfunction(method)]
    assert methods
    used = {name for method in methods for name in method.__code__.co_names}
    assert not used & {"add_weight", "SeedGenerator"}


# Losses

WIDTH = 5
PROBABILITIES = np.exp(numbers(BATCH, WIDTH)) / np.exp(numbers(BATCH, WIDTH)).sum(1, keepdims=True)
ONE_HOT = np.eye(WIDTH, dtype=np.float32)[integers(WIDTH, BATCH)]
BITS = integers(2, BATCH, WIDTH).astype(np.float32)
REALS = numbers(BATCH, WIDTH, seed=3)
FEATURES = numbers(BATCH, 8, seed=4)


@dataclasses.dataclass(frozen=True)
class Loss:
    """One loss: what makes it, what the outputs it judges come from, and the targets."""

    make: Callable[[], losses.Loss]
    activation: str
    y: np.ndarray
    shape: tuple[int, ...] = (WIDTH,)


LOSSES: dict[str, Loss] = {
    "BinaryCrossentropy": Loss(losses.BinaryCrossentropy, "sigmoid", BITS),
    "BinaryFocalCrossentropy": Loss(losses.BinaryFocalCrossentropy, "sigmoid", BITS),
    "CTC": Loss(losses.CTC, "linear", integers(3, BATCH, 3) + 1, (7, 5)),
    "CategoricalCrossentropy": Loss(lambda: losses.CategoricalCrossentropy(label_smoothing=0.1), "softmax", ONE_HOT),
    "CategoricalFocalCrossentropy": Loss(losses.CategoricalFocalCrossentropy, "softmax", ONE_HOT),
    "CategoricalGeneralizedCrossEntropy": Loss(
        losses.CategoricalGeneralizedCrossEntropy, "softmax", integers(WIDTH, BATCH)
    ),
    "CategoricalHinge": Loss(losses.CategoricalHinge, "tanh", ONE_HOT),
    "Circle": Loss(losses.Circle, "tanh", np.array([0, 1, 0, 1], np.int32)),
    "CosineSimilarity": Loss(losses.CosineSimilarity, "linear", REALS),
    "Dice": Loss(losses.Dice, "sigmoid", BITS),
    "Hinge": Loss(losses.Hinge, "tanh", BITS),
    "Huber": Loss(lambda: losses.Huber(0.5), "linear", REALS),
    "KLDivergence": Loss(losses.KLDivergence, "softmax", PROBABILITIES),
    "LogCosh": Loss(losses.LogCosh, "linear", REALS),
    "MeanAbsoluteError": Loss(losses.MeanAbsoluteError, "linear", REALS),
    "MeanAbsolutePercentageError": Loss(losses.MeanAbsolutePercentageError, "linear", REALS),
    "MeanSquaredError": Loss(losses.MeanSquaredError, "linear", REALS),
    "MeanSquaredLogarithmicError": Loss(losses.MeanSquaredLogarithmicError, "softplus", np.abs(REALS)),
    "Poisson": Loss(losses.Poisson, "softplus", np.abs(REALS)),
    "SparseCategoricalCrossentropy": Loss(losses.SparseCategoricalCrossentropy, "softmax", integers(WIDTH, BATCH)),
    "SquaredHinge": Loss(losses.SquaredHinge, "tanh", BITS),
    "Tversky": Loss(lambda: losses.Tversky(0.3, 0.7), "sigmoid", BITS),
}


@functools.cache
def all_losses() -> tuple[Stepped, Stepped]:
    """One step of a model with an output for each loss, from a dense layer of its own."""

    def run(scope: Scope) -> Stepped:
        with scope:
            given, outputs, made = keras.Input((8,), batch_size=BATCH), {}, {}
            for name, loss in LOSSES.items():
                made[name] = layers.Dense(int(np.prod(loss.shape)), loss.activation)
                outputs[name] = layers.Reshape(loss.shape, name=name)(made[name](given))
            model = keras.Model(given, outputs)
            model.compile(optimizers.SGD(0.1), {name: loss.make() for name, loss in LOSSES.items()})
        targets = {name: loss.y for name, loss in LOSSES.items()}
        logs = model.fit(FEATURES, targets, batch_size=BATCH, verbose=0).history
        return Stepped(logs, {name: [v.numpy() for v in layer.variables] for name, layer in made.items()})

    return both_sides(run)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss(name: str) -> None:
    found, wanted = all_losses()
    np.testing.assert_allclose(found.logs[f"{name}_loss"], wanted.logs[f"{name}_loss"], rtol=RTOL)
    assert_same_arrays(found.variables[name], wanted.variables[name])


def test_no_loss_is_forgotten() -> None:
    assert sorted([*LOSSES, "Loss"]) == sorted(public(losses, losses.Loss))


# Optimizers

OPTIMIZERS: dict[str, Callable[[], optimizers.Optimizer]] = {
    "Adadelta": lambda: optimizers.Adadelta(0.5),
    "Adafactor": lambda: optimizers.Adafactor(0.05),
    "Adagrad": lambda: optimizers.Adagrad(0.1),
    "Adam": lambda: optimizers.Adam(0.05, amsgrad=True),
    "AdamW": lambda: optimizers.AdamW(0.05, weight_decay=0.1),
    "Adamax": lambda: optimizers.Adamax(0.05),
    "Ftrl": lambda: optimizers.Ftrl(0.1, l1_regularization_strength=0.01),
    "Lamb": lambda: optimizers.Lamb(0.05),
    "Lion": lambda: optimizers.Lion(0.01),
    "LossScaleOptimizer": lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.05), initial_scale=64.0),
    "MultiOptimizer": lambda: optimizers.MultiOptimizer(
        optimizers.OptimizerMap(optimizers.SGD(0.1), {".*/bias": optimizers.Adam(0.05)})
    ),
    "Muon": lambda: optimizers.Muon(0.05),
    "Nadam": lambda: optimizers.Nadam(0.05),
    "RMSprop": lambda: optimizers.RMSprop(0.05, centered=True, momentum=0.5),
    "SGD": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "ScheduleFreeAdamW": lambda: optimizers.ScheduleFreeAdamW(0.05),
}
STEPS = 3


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer(name: str) -> None:
    x, y = numbers(BATCH * STEPS, 8), numbers(BATCH * STEPS, 5, seed=2)

    def run(scope: Scope) -> Stepped:
        with scope:
            model = keras.Sequential([keras.Input((8,), batch_size=BATCH), layers.Dense(6, "tanh"), layers.Dense(5)])
            model.compile(OPTIMIZERS[name](), "mse", steps_per_execution=STEPS)
        logs = model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False).history
        variables = {"weights": model.weights, "optimizer": model.optimizer.variables}
        return Stepped(logs, {kind: [each.numpy() for each in kept] for kind, kept in variables.items()})

    found, wanted = both_sides(run, STEPS)
    assert_same_numbers(found.logs, wanted.logs, RTOL)
    for kind, arrays in wanted.variables.items():
        assert_same_arrays(found.variables[kind], arrays)


def test_no_optimizer_is_forgotten() -> None:
    assert sorted([*OPTIMIZERS, "Optimizer"]) == sorted(public(optimizers, optimizers.Optimizer))


# Metrics

#: Targets and predictions, `[12, 5]` or as said: three batches.
SAMPLES = BATCH * 3
SCORES = 1 / (1 + np.exp(-numbers(SAMPLES, WIDTH, seed=5)))
SHARES = np.exp(numbers(SAMPLES, WIDTH, seed=6)) / np.exp(numbers(SAMPLES, WIDTH, seed=6)).sum(1, keepdims=True)
CLASSES = integers(WIDTH, SAMPLES, seed=7)
KINDS: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "real": (numbers(SAMPLES, WIDTH, seed=8), numbers(SAMPLES, WIDTH, seed=9)),
    "positive": (np.abs(numbers(SAMPLES, WIDTH, seed=8)), np.abs(numbers(SAMPLES, WIDTH, seed=9)) + 0.1),
    "binary": (integers(2, SAMPLES, WIDTH).astype(np.float32), SCORES),
    "shares": (np.roll(SHARES, 1, 0), SHARES),
    "one_hot": (np.eye(WIDTH, dtype=np.float32)[CLASSES], SHARES),
    "sparse": (CLASSES, SHARES),
    "classes": (CLASSES[:, None], integers(WIDTH, SAMPLES, 1, seed=8).astype(np.float32)),
}
Make = Callable[[], metrics.Metric]
METRICS: dict[str, tuple[str, Make]] = {
    "AUC": ("binary", lambda: metrics.AUC(num_thresholds=50)),
    "Accuracy": ("classes", metrics.Accuracy),
    "BinaryAccuracy": ("binary", metrics.BinaryAccuracy),
    "BinaryCrossentropy": ("binary", metrics.BinaryCrossentropy),
    "BinaryIoU": ("binary", metrics.BinaryIoU),
    "CategoricalAccuracy": ("one_hot", metrics.CategoricalAccuracy),
    "CategoricalCrossentropy": ("one_hot", metrics.CategoricalCrossentropy),
    "CategoricalHinge": ("one_hot", metrics.CategoricalHinge),
    "ConcordanceCorrelation": ("real", metrics.ConcordanceCorrelation),
    "CosineSimilarity": ("real", metrics.CosineSimilarity),
    "F1Score": ("one_hot", lambda: metrics.F1Score(average="macro")),
    "FBetaScore": ("one_hot", lambda: metrics.FBetaScore(average="weighted", beta=2.0)),
    "FalseNegatives": ("binary", metrics.FalseNegatives),
    "FalsePositives": ("binary", metrics.FalsePositives),
    "Hinge": ("binary", metrics.Hinge),
    "IoU": ("classes", lambda: metrics.IoU(WIDTH, [0, 2])),
    "KLDivergence": ("shares", metrics.KLDivergence),
    "LogCoshError": ("real", metrics.LogCoshError),
    "MeanAbsoluteError": ("real", metrics.MeanAbsoluteError),
    "MeanAbsolutePercentageError": ("real", metrics.MeanAbsolutePercentageError),
    "MeanIoU": ("classes", lambda: metrics.MeanIoU(WIDTH)),
    "MeanMetricWrapper": ("real", lambda: metrics.MeanMetricWrapper(keras.losses.huber, name="wrapped")),
    "MeanSquaredError": ("real", metrics.MeanSquaredError),
    "MeanSquaredLogarithmicError": ("positive", metrics.MeanSquaredLogarithmicError),
    "OneHotIoU": ("one_hot", lambda: metrics.OneHotIoU(WIDTH, [0, 2])),
    "OneHotMeanIoU": ("one_hot", lambda: metrics.OneHotMeanIoU(WIDTH)),
    "PearsonCorrelation": ("real", metrics.PearsonCorrelation),
    "Poisson": ("positive", metrics.Poisson),
    "Precision": ("binary", lambda: metrics.Precision([0.3, 0.6])),
    "PrecisionAtRecall": ("binary", lambda: metrics.PrecisionAtRecall(0.5, 50)),
    "R2Score": ("real", metrics.R2Score),
    "Recall": ("binary", metrics.Recall),
    "RecallAtPrecision": ("binary", lambda: metrics.RecallAtPrecision(0.5, 50)),
    "RootMeanSquaredError": ("real", metrics.RootMeanSquaredError),
    "SensitivityAtSpecificity": ("binary", lambda: metrics.SensitivityAtSpecificity(0.5, 50)),
    "SparseCategoricalAccuracy": ("sparse", metrics.SparseCategoricalAccuracy),
    "SparseCategoricalCrossentropy": ("sparse", metrics.SparseCategoricalCrossentropy),
    "SparseTopKCategoricalAccuracy": ("sparse", lambda: metrics.SparseTopKCategoricalAccuracy(2)),
    "SpecificityAtSensitivity": ("binary", lambda: metrics.SpecificityAtSensitivity(0.5, 50)),
    "SquaredHinge": ("binary", metrics.SquaredHinge),
    "TopKCategoricalAccuracy": ("one_hot", lambda: metrics.TopKCategoricalAccuracy(2)),
    "TrueNegatives": ("binary", metrics.TrueNegatives),
    "TruePositives": ("binary", metrics.TruePositives),
}
LEFT_OUT_METRICS = {
    "Metric": "the base of all",
    "Mean": "takes values, not targets and predictions; it is what every loss is shown by",
    "Sum": "takes values, not targets and predictions",
}


@functools.cache
def all_metrics() -> tuple[Stepped, Stepped]:
    """Three batches of an evaluation; the predictions are the inputs themselves."""

    def run(scope: Scope) -> Stepped:
        with scope:
            inputs = {kind: keras.Input(p.shape[1:], batch_size=BATCH, name=kind) for kind, (_, p) in KINDS.items()}
            outputs = {kind: layers.Identity(name=f"{kind}_out")(given) for kind, given in inputs.items()}
            model = keras.Model(inputs, outputs)
            made = {name: make() for name, (_, make) in METRICS.items()}
            told = {kind: [made[name] for name in METRICS if METRICS[name][0] == kind] for kind in KINDS}
            model.compile(loss=dict.fromkeys(KINDS, "mse"), metrics=told, steps_per_execution=3)
        x, y = ({kind: pair[side] for kind, pair in KINDS.items()} for side in (1, 0))
        y["sparse"] = y["sparse"][:, None]
        logs = model.evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True)
        variables = {name: [variable.numpy() for variable in metric.variables] for name, metric in made.items()}
        return Stepped(logs, variables | {f"{name} result": [np.array(each.result())] for name, each in made.items()})

    return both_sides(run, 3)


@pytest.mark.parametrize("name", METRICS)
def test_a_metric(name: str) -> None:
    found, wanted = all_metrics()
    assert any(array.any() for array in wanted.variables[name])
    assert_same_arrays(found.variables[name], wanted.variables[name])
    assert_same_arrays(found.variables[f"{name} result"], wanted.variables[f"{name} result"])


def test_metrics_are_shown_as_on_stock_keras() -> None:
    found, wanted = all_metrics()
    assert_same_numbers(found.logs, wanted.logs, RTOL)


def test_no_metric_is_forgotten() -> None:
    assert sorted([*METRICS, *LEFT_OUT_METRICS]) == sorted(public(metrics, metrics.Metric))
