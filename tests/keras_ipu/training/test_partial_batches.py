"""Data whose batches do not divide: the numbers are those of stock Keras, whatever the split. On both backends."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from ipu_tf.gradient_accumulation import GradientAccumulationReductionMethod as Reduction
from keras_ipu.training.common.padding import computes_each_sample
from tests.helpers.device_counts import device_work
from tests.helpers.random_fits import assert_close
from tests.helpers.some_ipus import ipus

X = np.random.default_rng(0).normal(size=(50, 5)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(50, 2)).astype(np.float32)
RATE = 0.05


def trained(fit: Callable[[keras.Model], Any], batch_norm: bool = False, rate: float = RATE, **compiled: Any) -> Any:
    """Makes a model, fits it, evaluates and predicts in batches of 16; returns all that it showed."""
    keras.utils.set_random_seed(1)
    norm = [layers.BatchNormalization(momentum=0.8)] if batch_norm else []
    head = layers.Dense(2, kernel_regularizer="l2" if batch_norm else None)
    model = keras.Sequential([keras.Input((5,)), layers.Dense(4, "tanh"), *norm, head])
    model.compile(
        keras.optimizers.SGD(rate, momentum=0.5), "mse", metrics=["mae"], weighted_metrics=["mse"], **compiled
    )
    history = fit(model).history
    evaluated = model.evaluate(X, Y, 16, verbose=0)
    return history, evaluated, model.predict(X, 16, verbose=0), model.get_weights(), int(model.optimizer.iterations)


def unknown_sizes() -> tf.data.Dataset:
    """Batches whose specs do not say any dimension."""
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    return dataset.map(lambda x, y: (tf.ensure_shape(tf.py_function(lambda v: v, [x], tf.float32), [None, None]), y))


def odd_batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of several sizes, without an end."""
    while True:
        for first, end in ((0, 16), (16, 21), (21, 37), (37, 50)):
            yield X[first:end], Y[first:end]


FITS: dict[str, Callable[[keras.Model], Any]] = {
    "arrays": lambda model: model.fit(X, Y, 16, epochs=2, verbose=0, validation_split=0.2),
    "weights": lambda model: model.fit(X, Y, 16, epochs=2, verbose=0, sample_weight=np.abs(Y[:, 0]), shuffle="batch"),
    "unknown sizes": lambda model: model.fit(unknown_sizes(), epochs=2, verbose=0, shuffle=False),
    "odd batches": lambda model: model.fit(odd_batches(), epochs=2, steps_per_epoch=3, verbose=0, shuffle=False),
    "less than a batch": lambda model: model.fit(X[:3], Y[:3], 16, epochs=2, verbose=0),
}


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning")
@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_partial_batches_as_in_stock_keras(name: str, steps_per_execution: int) -> None:
    if name == "odd batches" and steps_per_execution > 1:
        pytest.skip("a source without an end gives whole executions, in stock Keras too")
    with device_work() as stock:
        wanted = trained(FITS[name], batch_norm=True)
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        found = trained(FITS[name], batch_norm=True, steps_per_execution=steps_per_execution)
    assert (stock.counts.executions, work.counts.steps >= found[-1] > 0) == (0, True)
    assert_close(found, wanted)


class NoBatches(keras.utils.PyDataset):
    """A dataset of length 0."""

    def __len__(self) -> int:
        return 0


SAMPLES = tf.data.Dataset.from_tensor_slices((X, Y))
EMPTY: dict[str, Callable[[], Any]] = {
    "arrays": lambda: (X[:0], Y[:0]),
    "dataset": lambda: SAMPLES.batch(16).filter(lambda x, y: False),
    "less than a batch": lambda: SAMPLES.batch(99, drop_remainder=True),
    "a batch without samples": lambda: tf.data.Dataset.from_tensors((X[:0], Y[:0])),
    "PyDataset": NoBatches,
    "generator": lambda: iter(()),
}


def shown_with(empty: Callable[[], Any]) -> list[Any]:
    """Evaluates, validates, predicts and fits with empty data; returns what each shows, of errors their names."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((5,)), layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.0), "mse", metrics=["mae"])
    data = empty()
    given = data if isinstance(data, tuple) else (data,)
    shown = []
    for call in (
        lambda: model.evaluate(*given, verbose=0),
        lambda: model.fit(X[:32], Y[:32], 16, validation_data=data, verbose=0).history,
        lambda: model.predict(given[0], verbose=0),
        lambda: model.fit(*given, verbose=0, shuffle=False).history,
    ):
        try:
            shown.append(call())
        except Exception as error:
            shown.append(type(error).__name__)
    return shown


@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
@pytest.mark.parametrize(
    ("kind", "replicas"), [*((kind, 1) for kind in EMPTY), ("dataset", 2), ("a batch without samples", 2)]
)
def test_empty_data_as_in_stock_keras(kind: str, replicas: int) -> None:
    wanted = shown_with(EMPTY[kind])
    with ipus(replicas) as strategy, strategy.scope(), device_work() as work:
        found = shown_with(EMPTY[kind])
    assert work.counts.executions > 0
    for ours, theirs in zip(found, wanted, strict=True):
        if isinstance(theirs, str):  # whose errors are slips of its own where there is no batch
            assert ours in (theirs, "ValueError")
        else:
            assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("replicas", "accumulation", "steps"), [(1, 1, 2 * 2 + 4), (2, 1, 2 * 1 + 2), (2, 2, 2 * 1 + 2), (1, 2, 2 * 1 + 4)]
)
def test_losses_of_two_outputs_as_in_stock_keras(replicas: int, accumulation: int, steps: int) -> None:
    """Keras on TensorFlow shows means over batches of any size for single outputs, and Keras on JAX over samples.

    The weights are not trained where several batches make an update: so each batch shows what it shows in stock Keras.
    """

    def shown(options: Callable[[keras.Model], None] = lambda model: None, **compiled: Any) -> Any:
        keras.utils.set_random_seed(1)
        inputs = keras.Input((5,))
        model = keras.Model(inputs, [layers.Dense(2, name="a")(inputs), layers.Dense(2, name="b")(inputs)])
        rate = RATE if replicas * accumulation == 1 else 0.0
        model.compile(keras.optimizers.SGD(rate), ["mse", "mae"], loss_weights=[0.5, 2.0], **compiled)
        options(model)
        history = model.fit(X[:21], (Y[:21], Y[:21]), 16, epochs=2, verbose=0).history
        return history, model.evaluate(X, (Y, Y), 16, verbose=0, return_dict=True)

    def options(model: keras.Model) -> None:
        if accumulation > 1:
            model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=accumulation)

    wanted = shown()
    with ipus(replicas) as strategy, strategy.scope(), device_work() as work:
        found = shown(options, steps_per_execution=4)
    assert work.counts.steps == steps
    assert {"a_loss", "b_loss"} < {*found[1]}
    assert_close(found, wanted)


@pytest.mark.parametrize("samples", [50, pytest.param(7, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("replicas", "micro_batches", "steps", "reduction"),
    [(1, 4, 4, Reduction.MEAN), (1, 2, 100, Reduction.SUM), (2, 1, 3, Reduction.SUM), (2, 2, 4, Reduction.MEAN)],
)
def test_a_smaller_effective_batch_is_one_update_however_it_is_split(
    samples: int, replicas: int, micro_batches: int, steps: int, reduction: Any
) -> None:
    def fit(model: keras.Model, batch: int = 16) -> Any:
        return model.fit(X[:samples], Y[:samples], batch, epochs=2, shuffle=False, verbose=0)

    def split_fit(model: keras.Model) -> Any:
        if micro_batches > 1:
            model.set_gradient_accumulation_options(
                gradient_accumulation_steps_per_replica=micro_batches,
                gradient_accumulation_reduction_method=reduction,
            )
        return fit(model, 16 // (replicas * micro_batches))

    wanted = trained(fit)
    scale = replicas * (micro_batches if reduction is Reduction.SUM else 1)  # gradients are added up, not averaged
    with ipus(replicas) as strategy, strategy.scope(), device_work() as work:
        found = trained(split_fit, rate=RATE / scale, steps_per_execution=steps)
    assert work.counts.steps > 0
    assert_close(found, wanted)


def test_a_pipeline_takes_its_last_micro_batches_too() -> None:
    def fit(model: keras.Model) -> Any:
        return model.fit(X, Y, 16, epochs=2, shuffle=False, verbose=0)

    def piped_fit(model: keras.Model) -> Any:
        model.set_pipeline_stage_assignment([0, 1])
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=4, gradient_accumulation_reduction_method=Reduction.MEAN
        )
        return model.fit(X, Y, 4, epochs=2, shuffle=False, verbose=0)

    wanted = trained(fit)
    with ipus(2) as strategy, strategy.scope(), device_work() as work:
        found = trained(piped_fit, steps_per_execution=4)
    assert work.counts.steps > 0
    assert_close((found[0]["loss"], *found[1:]), (wanted[0]["loss"], *wanted[1:]))


def single_batches(rate: float, accumulation: int = 1) -> Any:
    """Trains, evaluates and predicts one batch a call; returns all that was shown."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((5,)), layers.Dense(2)])
    model.compile(keras.optimizers.SGD(rate), "mse", metrics=["mae"], steps_per_execution=accumulation)
    if accumulation > 1:
        model.set_gradient_accumulation_options(accumulation, gradient_accumulation_reduction_method="mean")
    rows = [slice(first, first + 7) for first in (0, 7, 14)]
    shown: list[Any] = [model.train_on_batch(X[row], Y[row], np.abs(Y[row, 0])) for row in rows]
    return [*shown, model.test_on_batch(X[:9], Y[:9]), model.predict_on_batch(X[:1]), model.get_weights()]


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_single_batch_on_replicas_is_one_update(accumulation: int) -> None:
    wanted = single_batches(2 * RATE)  # gradients of two replicas are added up
    with ipus(2) as strategy, strategy.scope(), device_work() as work:
        found = single_batches(RATE, accumulation)
    assert work.counts.steps == 5
    assert_close(found, wanted)


def test_predicting_one_sample_compiles_one_program_of_its_size() -> None:
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        model = keras.Sequential([keras.Input((5,)), layers.Dense(2)])
        found = model.predict(X[:1], verbose=0)
    np.testing.assert_allclose(found, X[:1] @ model.get_weights()[0], rtol=1e-5, atol=1e-6)
    assert (work.counts.programs, work.counts.steps) == (1, 1)


def recurrent() -> keras.Model:
    """A network of Keras's layers, which compute each sample by itself."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((5,))
    sequence = layers.LSTM(3)(layers.Reshape((5, 1))(layers.BatchNormalization()(inputs)))
    return keras.Model(inputs, {"a": layers.Dense(2)(sequence), "b": layers.Concatenate()([sequence, inputs])})


def predictions(steps_per_execution: int) -> list[Any]:
    """Of arrays of several sizes in batches of 8, then of a dataset."""
    model, inputs = recurrent(), SAMPLES.map(lambda x, y: x).batch(8)
    model.compile(steps_per_execution=steps_per_execution)
    shown = [model.predict(X[:samples], 8, verbose=0) for samples in (1, 2, 3, 5, 7, 8, 12, 17)]
    return [*shown, model.predict(inputs, verbose=0)]


@pytest.mark.parametrize(("steps_per_execution", "most"), [(1, 4), (3, 8)])
def test_predictions_of_many_sizes_share_programs(steps_per_execution: int, most: int) -> None:
    wanted = predictions(1)
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        found = predictions(steps_per_execution)
    assert_close(found, wanted)
    assert work.counts.programs <= most  # of 1, 2, 4 and 8 rows; of several steps, for one step and for more
    assert work.counts.steps == 6 + 2 + 3 + 7


def centred(x: Any) -> Any:
    """Depends on the whole batch."""
    return x - keras.ops.mean(x, axis=0)


UNKNOWN: dict[str, Callable[[Any], Any]] = {
    "a function": lambda x: layers.Lambda(centred)(x),
    "an op": lambda x: centred(x),
    "an activation": lambda x: layers.Dense(2, activation=centred)(x),
    "a call that trains": lambda x: layers.BatchNormalization()(x, training=True),
    "an axis": lambda x: layers.Softmax(axis=0)(x),
    "an axis from behind": lambda x: layers.Softmax(axis=-2)(x),
    "a layer within": lambda x: keras.Sequential([keras.Input((5,)), layers.UnitNormalization(axis=0)])(x),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_depends_on_the_whole_batch_is_not_padded(name: str) -> None:
    inputs = keras.Input((5,))
    assert not computes_each_sample(keras.Model(inputs, UNKNOWN[name](layers.Dense(5)(inputs))))


def test_a_batch_that_counts_as_a_whole_is_predicted_as_it_is() -> None:
    wanted = centred(X[:5])
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        found = keras.Sequential([keras.Input((5,)), layers.Lambda(centred)]).predict(X[:5], verbose=0)
    assert work.counts.programs == 1
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def summed() -> keras.Model:
    """The sum of two inputs, through Keras's layers."""
    first, second = keras.Input((5,)), keras.Input((5,))
    return keras.Model([first, second], layers.Dense(2, kernel_initializer="ones")(layers.Add()([first, second])))


def dense() -> keras.Model:
    return keras.Sequential([keras.Input((5,)), layers.Dense(2, kernel_initializer="ones")])


class Factored(keras.Model):
    """Multiplies rows by a number."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(2, kernel_initializer="ones")

    def call(self, inputs: Any) -> Any:
        factor, rows = inputs
        return factor * self.dense(rows)


NOT_OF_SAMPLES: dict[str, tuple[Callable[[], keras.Model], Callable[[Any], Any], int]] = {
    "a number for a target": (dense, lambda x: (x, 0), 1),
    "targets of every other sample": (dense, lambda x: (x, x[::2]), 2),
    "an input of one row": (summed, lambda x: ((x, tf.ones([1, 5])),), 1),
    "a first input of one row": (summed, lambda x: ((tf.ones([1, 5]), x),), 2),
    "a first input that is a number": (Factored, lambda x: ((2.0, x),), 2),
}
"""A model, the batch for some samples, and how many programs predict full batches and the last one."""


@pytest.mark.parametrize("name", NOT_OF_SAMPLES)
def test_arrays_without_a_row_for_each_sample_are_predicted_as_in_stock_keras(name: str) -> None:
    make, batch, programs = NOT_OF_SAMPLES[name]
    data = tf.data.Dataset.from_tensor_slices(X[:13]).batch(8).map(batch)
    wanted = make().predict(data, verbose=0)
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        found = make().predict(data, verbose=0)
    assert work.counts.programs == programs
    assert_close(found, wanted)


def test_full_batches_compile_nothing_more_and_a_partial_one_one_program(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ipu_tf")
    with ipus(1) as strategy, strategy.scope(), device_work() as full:
        model = keras.Sequential([keras.Input((5,)), layers.Dense(2)])
        model.compile("sgd", "mse")
        model.fit(X[:48], Y[:48], 16, epochs=2, verbose=0)
    assert (full.counts.programs, full.counts.steps) == (1, 6)
    with ipus(1) as strategy, strategy.scope(), device_work() as partial:
        model = keras.Sequential([keras.Input((5,)), layers.Dense(2)], name="partial")
        model.compile("sgd", "mse")
        model.fit(X, Y, 16, epochs=2, verbose=0)
    assert (partial.counts.programs, partial.counts.steps) == (2, 8)
    assert caplog.text.count("partial: a batch of 2 samples is computed by a program of its own") == 1


def test_shapes_that_change_in_another_dimension_are_refused_with_both() -> None:
    batches = [(X[:8], Y[:8]), (X[:8, :4], Y[:8])]
    with ipus(1) as strategy, strategy.scope():
        model = keras.Sequential([layers.Dense(2)])
        model.compile("sgd", "mse")
        with pytest.raises(ValueError, match=r"must have the shape \(8, 5\).* Received: shape \(8, 4\)\. Pad the data"):
            model.fit((batch for batch in batches), shuffle=False, verbose=0)


@pytest.mark.parametrize("wanted", [True, False])
def test_the_switch_decides_whose_rules_hold(wanted: bool) -> None:
    with ipus(1, graphcore_rules=wanted) as strategy, strategy.scope():
        model = keras.Sequential([keras.Input((5,)), layers.Dense(2)])
        refused = pytest.raises(ValueError, match="has a partial batch") if wanted else contextlib.nullcontext()
        with refused:
            assert len(model.predict(X, 16, verbose=0)) == 50
