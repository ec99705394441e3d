"""Recurrent layers against Keras' layers, values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._rnn import cells as rnn_cells
from ipu_tf.ops import rnn_ops
from ipu_tf.ops.rnn_ops import LSTMStateTuple
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture
from tests.helpers.ops_parity import assert_close, on_device, with_gradients

Strategy = ipu.ipu_strategy.IPUStrategyV1
tf1 = tf.compat.v1
STEPS, BATCH, FEATURES, UNITS = 5, 4, 3, 2
LENGTHS = np.array([5, 1, 3, 2], np.int32)
ACTIVATIONS = [("tanh", "sigmoid"), ("relu", "sigmoid"), ("sigmoid", "softmax")]


def _floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _arguments(gates: int, *bias_shape: int) -> list[np.ndarray]:
    kernel = _floats(FEATURES + UNITS, gates * UNITS, seed=1)
    return [_floats(STEPS, BATCH, FEATURES), kernel, _floats(*bias_shape, seed=2)]


def _keras_results(layer: Any, bias: np.ndarray, args: list[np.ndarray], lengths: Any) -> list[np.ndarray]:
    """Outputs, states, and the gradients for inputs, kernel and bias, in our layout."""
    x, kernel, _ = args
    layer.build((BATCH, STEPS, FEATURES))
    layer.set_weights([kernel[:FEATURES], kernel[FEATURES:], bias])
    mask = None if lengths is None else np.arange(STEPS) < lengths[:, None]

    def run(x: tf.Tensor) -> list[tf.Tensor]:
        outputs, *states = layer(tf.transpose(x, [1, 0, 2]), mask=mask)
        outputs = outputs if mask is None else tf.where(mask[..., None], outputs, 0.0)
        return [tf.transpose(outputs, [1, 0, 2]), *states]

    variables = [variable.value for variable in layer.trainable_variables]
    inputs = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        results = run(inputs)
        weights = [tf.reshape(tf.linspace(0.5, 1.5, tf.size(r)), tf.shape(r)) for r in results]
        total = tf.add_n([tf.reduce_sum(r * w) for r, w in zip(results, weights, strict=True)])
    of_x, of_kernel, of_recurrent, of_bias = tape.gradient(total, [inputs, *variables])
    gradients = [of_x, tf.concat([of_kernel, of_recurrent], axis=0), of_bias]
    return [np.asarray(value) for value in [*results, *gradients]]


def _assert_keras(device: Strategy, function: Callable[..., Any], wanted: list[np.ndarray], args: Any) -> None:
    found = tf.nest.flatten(on_device(device, with_gradients(function), *args))
    assert len(found) == len(wanted)
    for got, expected in zip(found, wanted, strict=True):
        assert_close(got, expected.reshape(got.shape), 1e-4)


@pytest.mark.parametrize("activations", ACTIVATIONS, ids=str)
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["all steps", "lengths"])
def test_lstm(strategy: Strategy, activations: tuple[str, str], lengths: Any) -> None:  # noqa: F811
    args, zeros = _arguments(4, 4, UNITS), tf.zeros([BATCH, UNITS])
    layer = keras.layers.LSTM(UNITS, *activations, return_sequences=True, return_state=True, unit_forget_bias=False)
    names = rnn_cells.Activations(*activations)
    _assert_keras(
        strategy,
        lambda x, kernel, bias: rnn_cells.lstm(x, kernel, bias, zeros, zeros, names, lengths),
        _keras_results(layer, args[2].reshape(-1), args, lengths),
        args,
    )


@pytest.mark.parametrize("reset_after", [False, True])
@pytest.mark.parametrize("activations", ACTIVATIONS[:2], ids=str)
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["all steps", "lengths"])
def test_gru(strategy: Strategy, activations: tuple[str, str], lengths: Any, reset_after: bool) -> None:  # noqa: F811
    args, zeros = _arguments(3, *([3, 2, UNITS] if reset_after else [3, UNITS])), tf.zeros([BATCH, UNITS])
    options = {"return_sequences": True, "return_state": True, "reset_after": reset_after}
    bias = args[2].swapaxes(0, 1).reshape(2, -1) if reset_after else args[2].reshape(-1)
    wanted = _keras_results(keras.layers.GRU(UNITS, *activations, **options), bias, args, lengths)
    if reset_after:
        wanted[-1] = wanted[-1].reshape(2, 3, UNITS).swapaxes(0, 1)
    names = rnn_cells.Activations(*activations)
    _assert_keras(
        strategy,
        lambda x, kernel, bias: rnn_cells.gru(x, kernel, bias, zeros, names, reset_after, lengths),
        wanted,
        args,
    )


def test_attention_weakens_the_update_gate(strategy: Strategy) -> None:  # noqa: F811
    x, kernel, bias = _arguments(3, 3, UNITS)
    score, state = np.random.default_rng(3).random((STEPS, BATCH)).astype(np.float32), _floats(BATCH, UNITS, seed=4)

    def sigmoid(values: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-values))

    wanted, h = [], state
    for step in range(STEPS):
        update, reset, candidate = np.split(x[step] @ kernel[:FEATURES] + bias.reshape(-1), 3, axis=1)
        of_update, of_reset, of_candidate = np.split(kernel[FEATURES:], 3, axis=1)
        z = sigmoid(update + h @ of_update) * (1 - score[step][:, None])
        r = sigmoid(reset + h @ of_reset)
        new = np.tanh(candidate + (r * h) @ of_candidate)
        new = z * h + (1 - z) * new
        counts = (step < LENGTHS)[:, None]
        h = np.where(counts, new, h)
        wanted.append(np.where(counts, new, 0))
    outputs, last = on_device(
        strategy,
        lambda x, kernel, bias, h, score: rnn_cells.gru(
            x, kernel, bias, h, rnn_cells.Activations(), sequence_lengths=LENGTHS, attention=score
        ),
        *(x, kernel, bias, state, score),
    )
    np.testing.assert_allclose(outputs, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, h, rtol=1e-5, atol=1e-6)


def test_an_lstm_in_float16(strategy: Strategy) -> None:  # noqa: F811
    def function(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> Any:
        zeros = tf.zeros([BATCH, UNITS], x.dtype)
        return rnn_cells.lstm(x, kernel, bias, zeros, zeros, rnn_cells.Activations())

    args = _arguments(4, 4, UNITS)
    halves = on_device(strategy, function, *(arg.astype(np.float16) for arg in args))
    for got, expected in zip(halves, function(*map(tf.constant, args)), strict=True):
        assert got.dtype == np.float16
        assert_close(got, expected.numpy(), 5e-3)


SCORE = np.zeros((STEPS, BATCH), np.float32)
LAYERS: dict[str, tuple[type, tuple[Any, ...], set[str]]] = {
    "popnn_lstm": (rnn_ops.PopnnLSTM, (), {"kernel", "biases"}),
    "popnn_dynamic_lstm": (rnn_ops.PopnnDynamicLSTM, (LENGTHS,), {"kernel", "biases"}),
    "popnn_gru": (rnn_ops.PopnnGRU, (), {"kernel", "biases"}),
    "popnn_dynamic_gru": (rnn_ops.PopnnDynamicGRU, (LENGTHS,), {"kernel", "biases"}),
    "popnn_augru": (rnn_ops.PopnnAUGRU, (LENGTHS, SCORE), {"kernel", "biases", "bias_r_u", "bias_c"}),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_train_in_a_graph(strategy: Strategy, name: str) -> None:  # noqa: F811
    kind, more, weights = LAYERS[name]
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [STEPS, BATCH, FEATURES])

        def step(x: tf.Tensor) -> Any:
            outputs, _ = kind(UNITS, seed=1)(x, *more)
            loss = tf.reduce_mean(tf.square(outputs - 0.5))
            return loss, tf1.train.GradientDescentOptimizer(1.0).minimize(loss)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            compiled = ipu.ipu_compiler.compile(step, [x])
        assert {variable.op.name for variable in tf1.trainable_variables()} == {f"{name}/{key}" for key in weights}
        session.run(tf1.global_variables_initializer())
        losses = [session.run(compiled, {x: _floats(STEPS, BATCH, FEATURES)})[0] for _ in range(8)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", LAYERS)
def test_layers_make_their_weights_once(name: str) -> None:
    kind, more, weights = LAYERS[name]
    layer = kind(UNITS)
    with pytest.raises(ValueError, match="'input_size' is unknown since layer has not been built."):
        layer.input_size  # noqa: B018 - raises
    with pytest.raises(RuntimeError, match="canonical_weight_shape invoked before input shape is known"):
        layer.canonical_weight_shape  # noqa: B018 - raises
    first, state = layer(_floats(STEPS, BATCH, FEATURES), *more)
    again, _ = layer(_floats(STEPS, BATCH, FEATURES), *more)
    np.testing.assert_array_equal(first, again)
    assert tf.nest.map_structure(lambda part: part.shape.as_list(), state) == tf.nest.pack_sequence_as(
        state, [[BATCH, UNITS]] * len(tf.nest.flatten(state))
    )
    assert layer.kernel.shape == layer.canonical_weight_shape
    assert layer.biases.shape == layer.canonical_bias_shapes
    assert (layer.input_size, layer.num_units, layer.num_layers, layer.saveable) == (FEATURES, UNITS, 1, False)
    assert len(layer.trainable_variables) == len(weights)
    without = kind(UNITS, return_state=False)(_floats(STEPS, BATCH, FEATURES), *more)
    assert without.shape == (STEPS, BATCH, UNITS)


def test_initial_states_and_the_order_of_the_dimensions() -> None:
    x, state = tf.constant(_floats(STEPS, BATCH, FEATURES)), tf.constant(_floats(BATCH, UNITS, seed=5))
    lstm = rnn_ops.PopnnLSTM(UNITS)
    outputs, last = lstm(x, initial_state=LSTMStateTuple(state, 2 * state))
    wanted = rnn_cells.lstm(x, lstm.kernel, lstm.biases, 2 * state, state, rnn_cells.Activations())
    for got, expected in zip((outputs, last.h, last.c), wanted, strict=True):
        np.testing.assert_array_equal(got, expected)
    with pytest.raises(ValueError, match="Invalid initial_state type: .*, expecting `LSTMStateTuple`."):
        lstm(x, initial_state=(state, state))
    gru = rnn_ops.PopnnDynamicGRU(UNITS, reset_after=True)
    first, _ = gru(x, LENGTHS, initial_state=state)
    second, _ = gru(tf.transpose(x, [1, 0, 2]), LENGTHS, state, time_major=False)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("kind", [rnn_ops.PopnnLSTM, rnn_ops.PopnnGRU])
def test_no_gradient_without_training(kind: type) -> None:
    layer, x = kind(UNITS), tf.constant(_floats(STEPS, BATCH, FEATURES))
    with tf.GradientTape() as tape:
        outputs, _ = layer(x, training=False)
    with pytest.raises(ValueError, match="in gradients, is_training must be set to True."):
        tape.gradient(outputs, layer.kernel)


def test_options_are_recorded_and_checked() -> None:
    rnn_ops.PopnnLSTM(UNITS, partials_dtype=tf.float16, options={"availableMemoryProportion": 0.8})
    recorded = {item.name for item in ipu.emulation.ignored_arguments()}
    assert {"PopnnLSTM.partials_dtype", "PopnnLSTM.options"} <= recorded
    layer = rnn_ops.PopnnGRU(UNITS, options_bwd={"availableMemoryProportion": -1.0})
    with pytest.raises(tf.errors.InternalError, match="Value must be greater than or equal to 0"):
        layer(_floats(STEPS, BATCH, FEATURES))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dtype": tf.float64}, "Only support float16, float32, provided <dtype: 'float64'>"),
        ({"activation": "gelu"}, "Unknown activation: 'gelu'. Choose one of hard_sigmoid, linear, relu"),
    ],
)
def test_bad_options(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        rnn_ops.PopnnLSTM(UNITS, **options)


@pytest.mark.parametrize(
    ("shape", "text"),
    [((STEPS, BATCH), "Expecting input_shape with 3 dims, got 2"), ((None, None, None), "The last dimension")],
)
def test_bad_shapes(shape: tuple[int | None, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        rnn_ops.PopnnGRU(UNITS).build(shape)
