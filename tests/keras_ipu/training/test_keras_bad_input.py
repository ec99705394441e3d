"""Bad input to `fit` is refused before anything trains, weights and optimizer untouched; on both backends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

BATCH, BATCHES, WIDTH = 4, 12, 20
X = np.random.default_rng(0).normal(size=(BATCH * BATCHES, WIDTH)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 5, BATCH * BATCHES).astype(np.int32)
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def fit(x: Any = X, y: Any = Y, batch: Any = BATCH, **told: Any) -> Callable[[keras.Model], Any]:
    """Fits a model to this."""
    return lambda model: model.fit(x, y, batch, verbose=0, **told)


def fit_to(dataset: tf.data.Dataset, **told: Any) -> Callable[[keras.Model], Any]:
    return fit(dataset, None, None, shuffle=False, **told)


def dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y))


def accumulate(count: int) -> Callable[[keras.Model], Any]:
    def run(model: keras.Model) -> None:
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=count)
        fit()(model)

    return run


def pipeline_without_a_count(model: keras.Model) -> None:
    model.set_pipeline_stage_assignment([0, 1])
    fit()(model)


def eagerly(model: keras.Model) -> None:
    model.run_eagerly = True
    fit()(model)


def ragged() -> tf.data.Dataset:
    rows = tf.ragged.constant([[1.0], [2.0, 3.0]])
    return tf.data.Dataset.from_tensor_slices((rows, [0, 1])).batch(2, drop_remainder=True)


def hashed(*shape: int, at: tuple[int, ...], value: int = 2**32 + 3, dtype: str = "int64") -> np.ndarray:
    """Ids of which one does not fit into 32 bits."""
    ids = np.ones(shape, dtype)
    ids[at] = value
    return ids


def with_steps(steps: Any) -> Callable[[keras.Model], Any]:
    """Compiles a model with this many steps an execution, and fits it."""

    def run(model: keras.Model) -> None:
        model.compile(model.optimizer, LOSS, steps_per_execution=steps)
        fit()(model)

    return run


def set_steps(model: keras.Model) -> None:
    model.steps_per_execution = -2
    fit()(model)


@dataclasses.dataclass(frozen=True)
class Case:
    """One thing that cannot be.

    Attributes:
        name: of the test.
        run: asks for it.
        error: what is raised.
        text: a pattern of its text.
        ipus: of the device.
        steps: of an execution.
    """

    name: str
    run: Callable[[keras.Model], Any]
    error: type[BaseException]
    text: str
    ipus: int = 1
    steps: int = 1


BY_GRAPHCORES_RULES = [
    Case("steps of an execution", fit(), ValueError, r"\(5\) must be a divisor of the number of batches \(12\)", 1, 5),
    Case(
        "steps of an execution on each of two replicas",
        fit(),
        ValueError,
        r"\(4\) must be a divisor of the number of batches \(6\) in the dataset provided to this replica",
        2,
        4,
    ),
    Case(
        "too little data for the replicas",
        fit(X[:8], Y[:8]),
        ValueError,
        "contains 2 items, but all 4 replicas are requested to run 1 steps each.* at least 4 items",
        4,
    ),
    Case(
        "too little data for the epoch",
        fit_to(dataset().batch(BATCH, drop_remainder=True), steps_per_epoch=13),
        ValueError,
        r"does not have enough data.* at least 13 batches \(currently it can only generate 12 batches\)",
    ),
    Case("a partial batch", fit(X[:-1], Y[:-1]), ValueError, r"has a partial batch.*\(currently set to 4\)"),
    Case("no batch", fit_to(dataset().batch(BATCH, True).filter(lambda x, y: False)), ValueError, "a non-empty array"),
    Case("batches of unknown size", fit_to(dataset().batch(BATCH)), ValueError, "which is not fully defined"),
    Case("eagerly", eagerly, RuntimeError, "cannot run eagerly.* Set `run_eagerly=False`"),
]
CASES = [
    Case(
        "accumulation",
        accumulate(3),
        RuntimeError,
        r"\(set to 4\) is not divisible by `gradient_accumulation_steps_per_replica` \(3\)",
        1,
        4,
    ),
    Case(
        "a pipeline that is not told how many micro-batches",
        pipeline_without_a_count,
        ValueError,
        r"is pipelined, however `gradient_accumulation_steps_per_replica` has not been set",
        2,
        4,
    ),
    Case(
        "data without an end",
        fit_to(dataset().batch(BATCH, drop_remainder=True).repeat()),
        ValueError,
        "infinite dataset, you must specify the number of steps",
    ),
    Case(
        "ragged data", fit_to(ragged()), ValueError, "is fed dense tensors. Received: a dataset with elements of Ragged"
    ),
    Case("samples of another width", fit(X[:, :-1]), ValueError, r"(?i)incompatible.*|expected.*20.*"),
    *[
        Case(
            f"{name}={value!r}",
            fit(X, Y, BATCH, **{name: value}),
            error,
            rf"`{name}` must be .*integer.*Received: {value!r}",
        )
        for name in ("epochs", "steps_per_epoch", "initial_epoch", "validation_batch_size", "validation_steps")
        for value, error in [(-2, ValueError), (2.5, TypeError), ("4", TypeError), (True, TypeError)]
    ],
    *[
        Case(f"batch_size={value!r}", fit(batch=value), error, rf"`batch_size` must be .*integer. Received: {value!r}")
        for value, error in [(-2, ValueError), (0, ValueError), (2.5, TypeError), ("4", TypeError), (True, TypeError)]
    ],
    *[
        Case(
            f"steps={value!r}",
            with_steps(value),
            error,
            rf"`steps_per_execution` must be .*integer. Received: {value!r}",
        )
        for value, error in [(-2, ValueError), (0, ValueError), (2.5, TypeError), ("4", TypeError), (None, TypeError)]
    ],
    Case(
        "steps that are set later",
        set_steps,
        ValueError,
        "`steps_per_execution` must be a positive integer. Received: -2",
    ),
    Case(
        "validation_freq",
        fit(validation_freq=0),
        ValueError,
        "`validation_freq` must be a positive integer. Received: 0",
    ),
    Case("as many targets as there are not", fit(X, Y[:-4]), ValueError, "(?i)cardinality|same number of samples"),
]


def values(model: keras.Model) -> Iterator[np.ndarray]:
    return (variable.numpy() for variable in (*model.variables, *model.optimizer.variables))


@pytest.mark.usefixtures("graphcore_rules")
@pytest.mark.parametrize("case", BY_GRAPHCORES_RULES, ids=lambda case: case.name)
def test_nothing_trains_by_graphcores_rules(case: Case) -> None:
    check_nothing_trains(case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_trains(case: Case) -> None:
    check_nothing_trains(case)


def check_nothing_trains(case: Case) -> None:
    with ipus(case.ipus) as strategy, strategy.scope(), device_work() as work:
        hidden = keras.layers.Dense(6, "tanh")
        model = keras.Sequential([keras.Input((WIDTH,)), hidden, keras.layers.Dense(5)])
        model.compile(keras.optimizers.Adam(0.1), LOSS, steps_per_execution=case.steps)
        model.optimizer.build(model.trainable_variables)
        before = list(values(model))
        with pytest.raises(case.error, match=case.text):
            case.run(model)
    assert work.counts.executions == 0
    for now, then in zip(values(model), before, strict=True):
        np.testing.assert_array_equal(now, then)


BAD = 2**32 + 3


class Batches(keras.utils.PyDataset):
    """Batches of inputs and targets, in order."""

    def __init__(self, targets: np.ndarray) -> None:
        super().__init__()
        self.targets = targets

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return X[rows], self.targets[rows]


STREAMS: dict[str, Callable[[np.ndarray], Any]] = {
    "dataset": lambda y: tf.data.Dataset.from_tensor_slices((X, y)).batch(BATCH, drop_remainder=True),
    "generator": lambda y: (Batches(y)[index] for index in range(BATCHES)),
    "PyDataset": Batches,
}


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning")  # Keras says so of every generator.
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("place", [0, 22, 47])
def test_batches_before_the_one_that_does_not_fit_are_kept(stream: str, place: int) -> None:
    with ipus(1) as strategy, strategy.scope():
        model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(5)])
        model.compile("sgd", LOSS, steps_per_execution=4)
        batch, sample = divmod(place, BATCH)
        where = rf"Feature y of element {batch} of '.*' must have numbers that int32 has.*: {BAD} at index \[{sample}"
        with pytest.raises(ValueError, match=where):
            model.fit(STREAMS[stream](hashed(48, at=(place,))), shuffle=False, verbose=0)
        assert int(model.optimizer.iterations) == batch
        fit()(model)


@pytest.mark.parametrize("call", ["train_on_batch", "test_on_batch", "predict_on_batch", "predict", "fit", "dataset"])
def test_the_feature_is_named(call: str) -> None:
    batch = {"batch_size": 4} if call in ("predict", "fit") else {}
    ids = {"id": hashed(4, 3, at=(3, 1)), "other": np.ones((4, 3), np.float32)}
    with ipus(1) as strategy, strategy.scope():
        inputs = {name: keras.Input((3,), dtype="int32" if name == "id" else None, name=name) for name in ids}
        cast = keras.layers.Lambda(lambda a: keras.ops.cast(a, "float32"), output_shape=(3,))(inputs["id"])
        model = keras.Model(inputs, keras.layers.Dense(1)(cast + inputs["other"]))
        model.compile("sgd", "mse")
        with pytest.raises(ValueError, match=rf"Feature x\['id'\] .*Received: {BAD} at index \[3, 1\]"):
            if call == "dataset":
                model.predict(tf.data.Dataset.from_tensors((ids,)), verbose=0)
            elif call.startswith("predict"):
                getattr(model, call)(ids, **batch)
            else:
                getattr(model, call)(ids, np.ones((4, 1), np.float32), **batch)


@pytest.mark.parametrize(
    ("value", "dtype", "fed"),
    [(-(2**31) - 1, "int64", "int32"), (2**63, "uint64", "uint32"), (2**32, "uint64", "uint32")],
)
def test_both_ends_of_both_kinds_of_whole_numbers(value: int, dtype: str, fed: str) -> None:
    with ipus(1) as strategy, strategy.scope():
        model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(5)])
        model.compile("sgd", LOSS)
        with pytest.raises(ValueError, match=f"fed {dtype} as {fed}. Received: {value} at index"):
            fit(y=hashed(48, at=(3,), value=value, dtype=dtype))(model)


def test_a_finite_number_does_not_become_infinite() -> None:
    y = np.ones((4, 5))
    y[2, 3], y[0, 0] = -1e300, np.inf
    with ipus(1) as strategy, strategy.scope():
        model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(5)])
        model.compile("sgd", "mse")
        with pytest.raises(ValueError, match=r"Feature y .* float32 has.*Received: -1e\+300 at index \[2, 3\]"):
            model.evaluate(tf.data.Dataset.from_tensors((X[:4], y)), verbose=0)
        y[2, 3] = np.nan
        model.evaluate(tf.data.Dataset.from_tensors((X[:4], y)), verbose=0)


@pytest.mark.parametrize("two", [np.int64(2), np.int8(2), tf.constant(2), tf.constant(2, tf.int64)], ids=repr)
def test_counts_may_be_numbers_of_other_libraries(two: Any) -> None:
    histories = []
    for count in (2, two):
        with ipus(1) as strategy, strategy.scope():
            model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(5, kernel_initializer="ones")])
            model.compile("sgd", LOSS, steps_per_execution=count)
            fit(batch=count, epochs=count, steps_per_epoch=count, shuffle=False)(model)
            histories.append((int(model.optimizer.iterations), model.get_weights()[0]))
    assert histories[0][0] == histories[1][0] == 4
    np.testing.assert_array_equal(histories[0][1], histories[1][1])


def test_the_ends_of_32_bits_are_fed_as_they_are() -> None:
    ids = np.array([[-(2**31)], [2**31 - 1], [0], [7]])
    with ipus(1) as strategy, strategy.scope():
        given = keras.Input((1,), dtype="int32")
        model = keras.Model(given, keras.layers.Lambda(lambda a: a, output_shape=(1,))(given))
        model.compile("sgd", "mse")
        for data in (ids, tf.data.Dataset.from_tensor_slices(ids).batch(2, drop_remainder=True)):
            np.testing.assert_array_equal(model.predict(data, None if data is not ids else 2, verbose=0), ids)
