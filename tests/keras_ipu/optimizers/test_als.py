"""Automatic loss scaling against a model of its rule in numpy, and against optimizers without it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_tf.eager.backprop import GradientCaptureTape
from ipu_tf.ops.grad_util_ops import capture_upstream_gradients
from keras_ipu.layers import CaptureUpstreamGradients
from keras_ipu.optimizers import (
    ALSGradientAccumulationOptimizer,
    ALSOptimizer,
    ALSOptimizerAdam,
    ALSOptimizerRMSProp,
    ALSOptimizerSGD,
    CrossReplicaOptimizer,
    GradientAccumulationOptimizer,
)
from keras_ipu.optimizers.als_specialised import ParameterUnscalingALSOptimizer
from keras_ipu.optimizers.parameter_unscaling import UnscalingSGD
from tests.helpers.keras_parity import Program, numbers
from tests.helpers.some_ipus import ipus

Specialised = Callable[..., ALSOptimizer]


@dataclasses.dataclass
class Model:
    """The rule, in numpy: what the state is after each application."""

    frequency: int
    increase: float
    largest: float
    threshold: float
    edge: float
    over_period: bool
    factor: float
    previous: float = 0.0
    counter: int = 0
    below: float = 0.0
    above: float = 0.0

    def apply(self, gradients: np.ndarray, captured: np.ndarray) -> None:
        """One application of float16 gradients."""
        due = self.frequency == 1 or (self.counter > 0 and self.counter % self.frequency == 0)
        if self.over_period or due:
            for values in (gradients, captured):
                above = int((~(np.abs(values.astype(np.float32)) < self.edge)).sum())
                self.above, self.below = self.above + above, self.below + values.size - above
        self.counter += 1
        if not due:
            return
        overflowed = self.above > 0 and self.above / (self.above + self.below) > self.threshold
        candidate = self.factor / self.increase if overflowed else self.factor * self.increase
        self.counter, self.above, self.below = 0, 0.0, 0.0
        if 1 <= candidate < self.largest:
            self.previous, self.factor = self.factor, candidate


MAGNITUDES = st.sampled_from([0.5, 100.0, 8192.0, 30000.0, float("inf"), float("nan")])


@given(
    st.integers(1, 4),
    st.sampled_from([2, 4]),
    st.sampled_from([1, 8]),
    st.booleans(),
    st.lists(st.tuples(st.lists(MAGNITUDES, min_size=4, max_size=4), MAGNITUDES), min_size=1, max_size=14),
)
@settings(max_examples=25, deadline=None)
def test_the_factor_follows_the_rule(
    frequency: int, increase: int, first: int, over_period: bool, steps: list[tuple[list[float], float]]
) -> None:
    options: dict[str, Any] = {"increase_factor": increase, "ratio_threshold": 0.3, "max_loss_scaling_factor": 64}
    optimizer = ALSOptimizer(
        keras.optimizers.SGD(0.0),
        initial_loss_scaling_factor=first,
        update_frequency=frequency,
        accumulate_statistics_over_update_period=over_period,
        **options,
    )
    model = Model(frequency, increase, 64, 0.3, 2**13, over_period, first, first)
    variable, ignored = keras.Variable(np.zeros(4, np.float16), dtype="float16"), keras.Variable(0.0)
    for gradients, captured in steps:
        grads, seen = np.asarray(gradients, np.float16), np.asarray([captured], np.float16)
        pairs = [(tf.constant(grads), variable), (tf.constant(1e9), ignored)]
        optimizer.apply_gradients(pairs, captured_grads={"tag": [tf.constant(seen)], "other": tf.constant(1e9)})
        model.apply(grads, seen)
        state = (optimizer.loss_scaling_factor, optimizer.previous_loss_scaling_factor, optimizer.update_counter)
        assert tuple(float(one) for one in state) == (model.factor, model.previous, model.counter)
        assert optimizer.histogram.numpy().tolist() == [model.below, model.above]
    total = model.below + model.above
    wanted = [model.below / max(total, 1), model.above / max(total, 1)]
    np.testing.assert_allclose(optimizer.normalized_histogram, wanted, rtol=1e-6)
    optimizer.reset()
    assert float(optimizer.loss_scaling_factor) == first
    assert optimizer.histogram.numpy().tolist() == [0, 0]


def applied(optimizer: ALSOptimizer, *gradients: float, captured: float = 0.0) -> list[float]:
    """The histogram after applications of one float16 gradient each."""
    variable = keras.Variable(0.0, dtype="float16")
    for gradient in gradients:
        grads = {"tag": tf.constant([captured, captured], tf.float16)}
        optimizer.apply_gradients([(tf.constant(gradient, tf.float16), variable)], captured_grads=grads)
    histogram: list[float] = optimizer.histogram.numpy().tolist()
    return histogram


def test_only_captured_gradients_count() -> None:
    optimizer = ALSOptimizer(keras.optimizers.SGD(0.0), captured_grads_only=True)
    assert applied(optimizer, 9000.0, captured=1.0) == [2.0, 0.0]


def test_a_low_pass_filter_holds_back() -> None:
    optimizer = ALSOptimizer(keras.optimizers.SGD(0.0), lpf_alpha=0.75)
    assert applied(optimizer, 9000.0, captured=1.0) == [0.5, 0.25]


def test_changing_what_counts_starts_anew() -> None:
    optimizer = ALSOptimizer(keras.optimizers.SGD(0.0))
    assert applied(optimizer, 9000.0) == [2.0, 1.0]
    optimizer.update_frequency = 3
    assert optimizer.histogram.numpy().tolist() == [2.0, 1.0]
    optimizer.histogram_bin_edge = 2**10
    assert optimizer.histogram.numpy().tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"update_frequency": 0}, "update_frequency must be nonzero and positive"),
        ({"increase_factor": 3}, "increase_factor must be a power of two"),
        ({"initial_loss_scaling_factor": 5}, "initial_loss_scaling_factor must be a power of two"),
        ({"initial_loss_scaling_factor": 10.0}, "initial_loss_scaling_factor must be a power of two"),
        ({"max_loss_scaling_factor": 5}, "max_loss_scaling_factor must be a power of two"),
        (
            {"initial_loss_scaling_factor": 4, "max_loss_scaling_factor": 2},
            "initial_loss_scaling_factor must be less than max_loss_scaling_factor",
        ),
        (
            {"increase_factor": 4, "max_loss_scaling_factor": 4},
            "initial_loss_scaling_factor x increase_factor must be less than max_loss_scaling_factor",
        ),
        ({"ratio_threshold": -1}, "ratio_threshold must be greater than zero and less than one"),
        ({"ratio_threshold": 2}, "ratio_threshold must be greater than zero and less than one"),
    ],
)
def test_settings_out_of_range(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as raised:
        ALSOptimizer(keras.optimizers.SGD(0.1), **arguments)
    assert str(raised.value) == text
    if len(arguments) == 1:
        optimizer = ALSOptimizer(keras.optimizers.SGD(0.1))
        with pytest.raises(ValueError):
            setattr(optimizer, *next(iter(arguments.items())))


@pytest.mark.parametrize(
    "name",
    [
        "histogram",
        "normalized_histogram",
        "loss_scaling_factor",
        "previous_loss_scaling_factor",
        "update_counter",
        "decrease_factor",
    ],
)
def test_state_is_read_only(name: str) -> None:
    with pytest.raises(ValueError) as raised:
        setattr(ALSOptimizer("sgd"), name, 1)
    assert str(raised.value) == f"{name} is a read only property."


def test_wrappers_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="can only be used with instances of ALSOptimizer"):
        ALSGradientAccumulationOptimizer(keras.optimizers.SGD(), 2)
    with pytest.raises(ValueError, match="but is not itself an instance of _ParameterUnscalingALSOptimizer"):
        ALSOptimizer(UnscalingSGD())
    with pytest.raises(ValueError, match="opt must be an OptimizerV2 specialization derived from"):
        ParameterUnscalingALSOptimizer(keras.optimizers.SGD())
    with pytest.raises(ValueError, match="`tape` is required"):
        ALSOptimizer("sgd").minimize(tf.constant(1.0), [])


PAIRS: dict[str, tuple[Specialised, Callable[[], Any]]] = {
    "sgd": (lambda **als: ALSOptimizerSGD(0.05, **als), lambda: keras.optimizers.SGD(0.05)),
    "momentum": (lambda **als: ALSOptimizerSGD(0.05, 0.9, **als), lambda: keras.optimizers.SGD(0.05, momentum=0.9)),
    "adam": (lambda **als: ALSOptimizerAdam(0.05, 0.8, 0.9, **als), lambda: keras.optimizers.Adam(0.05, 0.8, 0.9)),
    "rmsprop": (lambda **als: ALSOptimizerRMSProp(0.05, **als), lambda: keras.optimizers.RMSprop(0.05)),
    "centered": (
        lambda **als: ALSOptimizerRMSProp(0.05, 0.8, 0.5, 1e-3, True, **als),
        lambda: keras.optimizers.RMSprop(0.05, rho=0.8, momentum=0.5, epsilon=1e-3, centered=True),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_weights_are_those_without_loss_scaling(name: str) -> None:
    """Whatever the factor does: it changes often here, and overflow makes it fall now and then."""
    specialised, stock = PAIRS[name]
    als = {"initial_loss_scaling_factor": 4, "update_frequency": 1, "max_loss_scaling_factor": 512}
    optimizers = [specialised(**als), ALSOptimizer(stock(), **als), stock()]  # type: ignore[arg-type]
    found = []
    for optimizer in optimizers:
        variable, half = keras.Variable([1.0, -2.0]), keras.Variable([0.0], dtype="float16")
        for step in range(12):
            scale = float(getattr(optimizer, "loss_scaling_factor", 1.0))
            overflow = 60000.0 if step % 3 == 0 else 0.0
            # The float16 variable only steers the factor: its gradient is beyond any scale.
            grads = [tf.constant([0.3, 1.0]) * (step - 4.0) * scale, tf.constant([overflow], tf.float16)]
            optimizer.apply(
                grads[: 2 if hasattr(optimizer, "histogram") else 1],
                [variable, half][: len(grads)] if hasattr(optimizer, "histogram") else [variable],
            )
        found.append(variable.numpy())
    assert float(optimizers[0].loss_scaling_factor) == float(optimizers[1].loss_scaling_factor)
    assert float(optimizers[0].previous_loss_scaling_factor) != 4.0
    np.testing.assert_allclose(found[0], found[2], rtol=2e-5)
    np.testing.assert_allclose(found[1], found[2], rtol=2e-5)


def half_model() -> keras.Model:
    """A float16 layer under a float32 one."""
    dense = keras.layers.Dense
    return keras.Sequential([keras.Input((3,)), dense(4, activation="tanh", dtype="float16"), dense(2)])


@pytest.mark.parametrize("name", ["adam", "centered"])
def test_training_on_the_device_is_as_on_the_host(name: str) -> None:
    specialised, _ = PAIRS[name]
    optimizer = lambda: specialised(update_frequency=3)  # noqa: E731
    Program(name, half_model, numbers(40, 3), numbers(40, 2, seed=2), optimizer=optimizer, rtol=5e-3).check()


def test_the_factor_grows_in_fit() -> None:
    program = Program(
        "als",
        half_model,
        numbers(40, 3),
        numbers(40, 2, seed=2),
        optimizer=lambda: ALSOptimizer(keras.optimizers.SGD(0.05), update_frequency=4),
        rtol=5e-3,
    )
    program.check()
    # 20 applications, and the factor doubles with every fifth.
    device = program.run_device().optimizer
    assert 16.0 in [float(value) for value in device if value.shape == ()]


@pytest.mark.parametrize("specialised", [False, True])
def test_accumulation_gives_the_weights_of_accumulated_gradients(specialised: bool) -> None:
    def wrapped() -> ALSOptimizer:
        als: dict[str, Any] = {"update_frequency": 1, "initial_loss_scaling_factor": 2}
        return ALSOptimizerSGD(0.1, 0.5, **als) if specialised else ALSOptimizer(stock(), **als)

    def stock() -> Any:
        return keras.optimizers.SGD(0.1, momentum=0.5)

    optimizer = ALSGradientAccumulationOptimizer(wrapped(), 2, reduction_method="MEAN")
    plain = GradientAccumulationOptimizer(stock(), 2, reduction_method="MEAN")
    variables = keras.Variable([1.0]), keras.Variable([1.0])
    factors = []
    for step in range(6):
        gradient = tf.constant([step + 1.0])
        factors.append(float(optimizer.loss_scaling_factor))
        optimizer.apply([optimizer.get_scaled_loss(gradient)], [variables[0]])
        plain.apply([gradient], [variables[1]])
    np.testing.assert_allclose(variables[0].numpy(), variables[1].numpy(), rtol=1e-5)
    # The factor changes with an update, not within an accumulation.
    assert factors == [2, 2, 4, 4, 8, 8]
    assert optimizer.update_frequency == 1 and optimizer.decrease_factor == 0.5
    with pytest.raises(AttributeError, match="no attribute 'minimize'"):
        _ = optimizer.minimize


def test_accumulation_counts_every_micro_batch() -> None:
    als = ALSOptimizer(keras.optimizers.SGD(0.0), update_frequency=2)
    optimizer = ALSGradientAccumulationOptimizer(als, 3)
    variable = keras.Variable(0.0, dtype="float16")
    seen = []
    for _ in range(9):
        optimizer.apply_gradients([(tf.constant(9000.0, tf.float16), variable)])
        seen.append(float(optimizer.histogram[1]))
    assert seen == [1, 2, 3, 4, 5, 6, 7, 8, 0]
    assert optimizer.supports_captured_grads


@pytest.mark.parametrize("make", [lambda: ALSOptimizer(keras.optimizers.SGD(1e-4)), lambda: ALSOptimizerSGD(1e-4)])
def test_an_overflow_does_not_end_the_training(make: Callable[[], ALSOptimizer]) -> None:
    optimizer, variable = make(), keras.Variable([0.0, 0.0, 0.0], dtype="float16")
    optimizer.apply([tf.constant([np.inf, -np.inf, 100.0], tf.float16)], [variable])
    np.testing.assert_allclose(variable.numpy(), [-6.5504, 6.5504, -0.01], rtol=1e-2)
    assert optimizer.histogram.numpy().tolist() == [1, 2]


@pytest.fixture(params=[False, True], ids=["eager", "function"])
def mode(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Runs a function as it is, or as a `tf.function`."""
    yield tf.function if request.param else (lambda function: function)


def test_gradients_of_a_scaled_loss(mode: Callable[..., Any]) -> None:
    optimizer = ALSOptimizer(keras.optimizers.SGD(0.1), initial_loss_scaling_factor=8)
    variable = tf.Variable(3.0)

    @mode
    def step() -> Any:
        with GradientCaptureTape() as tape:
            loss = capture_upstream_gradients(variable * variable, tag="square")
        optimizer.minimize(loss, [variable], tape=tape)
        return tape.captured_gradients

    captured = step()
    np.testing.assert_allclose(captured["square"][0], 8.0)
    np.testing.assert_allclose(variable.numpy(), 3.0 - 0.1 * 6.0, rtol=1e-6)
    np.testing.assert_allclose(optimizer.get_scaled_loss(tf.constant(2.0, tf.float16)), 16.0)
    # A function of the loss needs no tape.
    optimizer.minimize(lambda: variable * 1.0, [variable])
    np.testing.assert_allclose(variable.numpy(), 2.4 - 0.1, rtol=1e-6)


def test_gradients_in_a_graph() -> None:
    optimizer = ALSOptimizer(keras.optimizers.SGD(0.1), initial_loss_scaling_factor=8)
    variable = keras.Variable(3.0)
    gradients = tf.function(lambda: optimizer.get_gradients(variable.value * 2.0, [variable]))
    assert float(gradients()[0]) == 16.0
    plain = tf.Variable(3.0)
    gradients = tf.function(lambda: optimizer.get_gradients(plain * 2.0, [plain]))
    assert float(gradients()[0]) == 16.0


@pytest.mark.parametrize("kind", [GradientAccumulationOptimizer, ALSGradientAccumulationOptimizer])
def test_an_accumulating_optimizer_given_with_nothing_more_to_accumulate(kind: Any) -> None:
    inner = kind(ALSOptimizer(keras.optimizers.SGD(0.1)), 4)
    if kind is GradientAccumulationOptimizer:
        assert kind(inner, 1) is inner
    else:
        with pytest.raises(ValueError, match="ALSOptimizer"):
            kind(inner, 1)
    assert (inner.num_mini_batches, inner.inner_optimizer is inner) == (4, False)


def test_replicas_scale_alike_by_what_each_captures() -> None:
    """One of them overflows: with factors of their own, replicas would add up gradients of different scales."""
    x, y = np.array([[1], [0.001]] * 2, np.float32), np.array([[1], [10000]] * 2, np.float32)
    with ipus(2) as strategy, strategy.scope():
        dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", dtype="float16")
        model = keras.Sequential([keras.Input((1,)), CaptureUpstreamGradients(dense)])
        settings: dict[str, Any] = {
            "initial_loss_scaling_factor": 2,
            "update_frequency": 1,
            "captured_grads_only": True,
        }
        model.compile(ALSOptimizer(keras.optimizers.SGD(0.01), **settings), "mse", steps_per_execution=2)
        model.fit(x, y, batch_size=1, shuffle=False, verbose=0)
        on_each = model.predict(np.ones((2, 1)), batch_size=1, verbose=0)
    assert on_each[0] == on_each[1]
    np.testing.assert_allclose(on_each[0], 0.22 + 0.01 * (1.56 + 20), rtol=2e-3)


def test_what_does_not_decay_is_told_to_the_optimizer_that_decays() -> None:
    variable = keras.Variable([1.0], name="bias")
    optimizer = CrossReplicaOptimizer(keras.optimizers.SGD(0.1, weight_decay=0.5))
    assert optimizer.weight_decay == 0.5
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    optimizer.apply([keras.ops.zeros((1,))], [variable])
    assert float(variable[0]) == 1.0


MAKERS: dict[str, Callable[[], Any]] = {
    "als": lambda: ALSOptimizer(keras.optimizers.Adam(0.5), update_frequency=3, lpf_alpha=0.5),
    "adam": lambda: ALSOptimizerAdam(keras.optimizers.schedules.ExponentialDecay(0.5, 2, 0.5), beta_1=0.5),
    "sgd": lambda: ALSOptimizerSGD(momentum=0.5, histogram_bin_edge=2),
    "rmsprop": lambda: ALSOptimizerRMSProp(centered=True, increase_factor=4),
    "accumulated": lambda: ALSGradientAccumulationOptimizer(ALSOptimizerSGD(), 2, dtype=tf.float16),
}


@pytest.mark.parametrize("name", MAKERS)
def test_an_optimizer_is_serialised(name: str) -> None:
    optimizer = MAKERS[name]()
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(again) is type(optimizer)
    assert again.get_config() == optimizer.get_config()
