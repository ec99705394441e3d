"""The layers of the addons against Keras's and against numpy, on the host and on the device.

Run with Keras on TensorFlow here, on JAX by `test_keras_on_jax.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

import ipu_tf as ipu
from ipu_tf.ops import f8_ops
from keras_ipu.addons import layers
from keras_ipu.addons.layers.rnn import hard_sigmoid
from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import Program, integers, numbers
from tests.helpers.layer_gradients import gradients_of
from tests.helpers.one_ipu import strategy as strategy

INPUTS = numbers(4, 5, 3)
computed_by_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="refused with Keras on JAX, see addons_jax_checks.py"
)


def copied(ours: Any, stock: Any, *shape: int | None) -> tuple[Any, Any]:
    """Both layers, built, with the same weights, none of which is as it was initialised."""
    ours.build(shape)
    stock.build(shape)
    weights = [weight + 0.1 * numbers(*weight.shape, seed=5) for weight in stock.get_weights()]
    stock.set_weights(weights)
    ours.set_weights(weights)
    return ours, stock


def both(ours: Any, stock: Any, inputs: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Outputs, and gradients of a function of them by the weights, of two layers."""
    found = []
    for layer in (ours, stock):
        output = np.asarray(layer(inputs))
        weights = numbers(*output.shape, seed=6)
        gradients = gradients_of(layer, lambda: ops.sum(ops.sin(layer(inputs)) * weights))  # noqa: B023
        found.append([output, *gradients])
    return found[0], found[1]


RNN: dict[str, dict[str, Any]] = {
    "last": {},
    "sequences": {"return_sequences": True},
    "relu": {"activation": "relu"},
    "softmax": {"recurrent_activation": "softmax"},
}


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("options", RNN)
def test_recurrent_layers_are_keras_own(kind: str, options: str) -> None:
    pair = (getattr(module, kind)(4, **RNN[options]) for module in (layers, keras.layers))
    found, wanted = both(*copied(*pair, 4, 5, 3), INPUTS)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_gates_before_the_reset() -> None:
    pair = copied(layers.GRU(4, reset_after=False), keras.layers.GRU(4, reset_after=False), 4, 5, 3)
    np.testing.assert_allclose(pair[0](INPUTS), pair[1](INPUTS), rtol=1e-5)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_time_major_data_and_states(kind: str) -> None:
    options = {"return_sequences": True, "return_state": True}
    ours, stock = copied(getattr(layers, kind)(4, **options), getattr(keras.layers, kind)(4, **options), 4, 5, 3)
    major = getattr(layers, kind)(4, time_major=True, **options)
    major.build((5, 4, 3))
    major.set_weights(ours.get_weights())
    states = [numbers(4, 4, seed=seed) for seed in range(2)] if kind == "LSTM" else numbers(4, 4)
    wanted = stock(INPUTS, initial_state=states)
    np.testing.assert_allclose(ours(INPUTS, initial_state=states)[0], wanted[0], rtol=1e-5)
    found = major(np.swapaxes(INPUTS, 0, 1), initial_state=states)
    assert len(found) == len(wanted)
    np.testing.assert_allclose(np.swapaxes(found[0], 0, 1), wanted[0], rtol=1e-5)
    for one, other in zip(found[1:], wanted[1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert (ours.num_units, ours.input_size) == (4, 3)
    shapes = [weight.shape for weight in (ours.kernel, ours.recurrent_kernel, ours.biases)]
    assert shapes == [weight.shape for weight in stock.weights]


def test_a_stateful_layer_goes_on() -> None:
    ours, stock = copied(layers.LSTM(4, stateful=True), keras.layers.LSTM(4, stateful=True), 4, 5, 3)
    for _ in range(3):
        np.testing.assert_allclose(ours(INPUTS), stock(INPUTS), rtol=1e-5)


def test_dropout_of_a_recurrent_layer_is_the_same_at_all_steps() -> None:
    layer = layers.LSTM(4, dropout=0.5, dropout_seed=[1, 2], recurrent_initializer="zeros", return_sequences=True)
    same = np.repeat(INPUTS[:, :1], 2, axis=1)
    first, second = (np.asarray(layer(same, training=True)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - np.asarray(layer(same))).max() > 0.01


@given(st.floats(-10, 10))
@settings(max_examples=20, deadline=None)
def test_hard_sigmoid(x: float) -> None:
    np.testing.assert_allclose(
        hard_sigmoid(ops.convert_to_tensor(x)), np.clip(0.2 * x + 0.5, 0, 1), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"activation": "elu"}, "IPU custom RNN layer does not support 'elu' as an activation. Acceptable value are"),
        ({"recurrent_activation": "relu"}, "does not support 'relu' as a recurrent activation."),
        ({"use_bias": False}, "layer does not support use_bias = False."),
        ({"kernel_regularizer": "l2"}, "layer does not support kernel_regularizer."),
        ({"recurrent_dropout": 0.5}, "layer does not support recurrent_dropout."),
        ({"implementation": 0}, "layer does not support implementation != 1."),
        ({"go_backwards": True}, "layer does not support go_backwards."),
        ({"unroll": True}, "layer does not support unroll."),
        ({"dtype": "bfloat16"}, "Only support float16, float32, provided bfloat16"),
    ],
)
def test_what_recurrent_layers_do_not_support(kind: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as raised:
        getattr(layers, kind)(4, **options)
    assert text in str(raised.value)


def test_shapes_that_recurrent_layers_refuse() -> None:
    with pytest.raises(ValueError, match="Expecting input_shape with 3 dims, got 2"):
        layers.LSTM(4).build((5, 3))
    with pytest.raises(ValueError, match="should be defined. Found `None`"):
        layers.LSTM(4).build((None, 5, None))
    with pytest.raises(NotImplementedError, match="LSTM does not support call argument mask"):
        layers.LSTM(4)(INPUTS, mask=np.ones((4, 5), bool))


@pytest.mark.parametrize("axis", [-1, 1, [1, 2], (-1, 1)])
@pytest.mark.parametrize("scaled", [True, False])
def test_layer_normalisation(axis: Any, scaled: bool) -> None:
    options = {"axis": axis, "center": scaled, "scale": scaled}
    ours = layers.LayerNormalization(**options)
    found, wanted = both(*copied(ours, keras.layers.LayerNormalization(**options), 4, 5, 3), INPUTS)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def normalised(x: np.ndarray, groups: int, strided: bool) -> np.ndarray:
    """Group normalisation over the last axis, a group at a time."""
    out, channels = np.empty_like(x), x.shape[-1]
    for group in range(groups):
        size = channels // groups
        members = slice(group, None, groups) if strided else slice(group * size, (group + 1) * size)
        part = x[..., members]
        axes = tuple(range(1, x.ndim))
        mean, variance = part.mean(axes, keepdims=True), part.var(axes, keepdims=True)
        out[..., members] = (part - mean) / np.sqrt(variance + 1e-3)
    return out


@pytest.mark.parametrize("strided", [True, False])
@pytest.mark.parametrize(("groups", "shape"), [(2, (3, 6)), (3, (2, 4, 6)), (6, (2, 3, 4, 6)), (1, (2, 2, 2, 3, 6))])
@pytest.mark.parametrize("axis", [-1, 1])
def test_group_normalisation(groups: int, shape: tuple[int, ...], axis: int, strided: bool) -> None:
    x = numbers(*shape) * 2 + 1
    layer = layers.GroupNormalization(groups, axis, strided_channel_grouping=strided)
    layer.build(np.moveaxis(x, -1, axis).shape)
    gamma, beta = numbers(6, seed=1), numbers(6, seed=2)
    layer.set_weights([gamma, beta])
    found = np.moveaxis(np.asarray(layer(np.moveaxis(x, -1, axis))), axis, -1)
    np.testing.assert_allclose(found, normalised(x, groups, strided) * gamma + beta, rtol=1e-3, atol=1e-4)


def test_group_normalisation_with_neighbouring_channels_is_keras_own() -> None:
    ours = layers.GroupNorm(2, strided_channel_grouping=False)
    found, wanted = both(*copied(ours, keras.layers.GroupNormalization(2), 4, 5, 6), numbers(4, 5, 6))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_instance_normalisation() -> None:
    layer = layers.InstanceNormalization()
    found = np.asarray(layer(INPUTS))
    np.testing.assert_allclose(found, normalised(INPUTS, 3, False), rtol=1e-3, atol=1e-5)
    half = layers.InstanceNormalization(dtype="float16")
    large = (INPUTS * 3000).astype(np.float16)
    assert keras.backend.standardize_dtype(half(large).dtype) == "float16"
    np.testing.assert_allclose(half(large), normalised(large.astype(np.float32), 3, False), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("layer", "shape", "text"),
    [
        (lambda: layers.GroupNorm(channels_axis=4), (2, 4), "Axis is out of bounds."),
        (lambda: layers.GroupNorm(5), (2, 4), "Invalid groups 5 for 4 channels."),
        (lambda: layers.GroupNorm(3), (2, 4), "4 channels is not commensurate with 3 groups."),
        (
            lambda: layers.GroupNorm(channels_axis=2),
            (2, 3, 4, 5),
            "Unsupported data format, group norm only supports NCHW(channel axis 1) and NHWC (channel axis -1).",
        ),
        (lambda: layers.GroupNorm(), None, "Input has undefined rank."),
        (lambda: layers.LayerNorm(3), (2, 4), "Invalid axis: 3"),
        (lambda: layers.LayerNorm([1, -1]), (2, 4), "Duplicate axis: (1, 1)"),
        (
            lambda: layers.LayerNorm(),
            (2, None),
            "Input shape (2, None) has unknown dimensions - all dimensions need to be fully specified.",
        ),
        (
            lambda: layers.LayerNorm(**dict[str, Any](axis="1")),
            (2, 4),
            "Expected an int or a list/tuple of ints for the argument 'axis', but received instead: 1",
        ),
    ],
)
def test_shapes_that_cannot_be_normalised(layer: Callable[[], Any], shape: Any, text: str) -> None:
    with pytest.raises(ValueError) as raised:
        layer().build(shape)
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("kind", "arguments", "name"),
    [
        (layers.Embedding, {"input_dim": 3, "output_dim": 2, "mask_zero": True}, "mask_zero"),
        (layers.Embedding, {"input_dim": 3, "output_dim": 2, "input_length": 4}, "input_length"),
        (layers.LayerNormalization, {"beta_constraint": "non_neg"}, "beta_constraint"),
    ],
)
def test_arguments_that_are_there_for_keras(kind: Any, arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(NotImplementedError, match=f"{kind.__name__} does not support __init__ argument {name}"):
        kind(**arguments)


def test_embedding() -> None:
    ours, stock = copied(layers.Embedding(7, 3, serialization_factor=7), keras.layers.Embedding(7, 3), 2, 4)
    ids = integers(7, 2, 4)
    np.testing.assert_array_equal(ours(ids, inputs_are_sorted=True), stock(ids))
    assert ours.compute_output_shape((2, 4)) == (2, 4, 3)
    with pytest.raises(ValueError, match="The input shape should be a tensor of shape .batch, input_length."):
        layers.Embedding(7, 3)(ids[0])
    assert "Embedding.serialization_factor" in {one.name for one in ipu.emulation.ignored_arguments()}


def test_dropout() -> None:
    x = np.ones((100, 40), np.float32)
    layer = layers.Dropout(0.25, seed=(1, 2))
    first, second = (np.asarray(layer(x, training=True)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(np.unique(first), [0, 4 / 3], rtol=1e-5)
    assert 0.2 < (first == 0).mean() < 0.3
    np.testing.assert_array_equal(layer(x), x)
    shared = np.asarray(layers.Dropout(0.5, noise_shape=[100, 1])(x, training=True))
    assert (shared == shared[:, :1]).all()
    free = layers.Dropout(0.5)
    assert (np.asarray(free(x, training=True)) != np.asarray(free(x, training=True))).any()


@pytest.mark.parametrize(
    ("dimension", "factor"), [("input_columns", 2), ("input_rows_kernel_columns", 3), ("kernel_rows", 4)]
)
def test_a_product_in_parts(dimension: str, factor: int) -> None:
    ours = layers.SerialDense(4, factor, dimension, "tanh")
    found, wanted = both(*copied(ours, keras.layers.Dense(4, "tanh"), 4, 3), INPUTS[:, 0])
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_products_that_cannot_be_divided() -> None:
    with pytest.raises(ValueError, match="serialization_factor has to be at least 1, but was 0."):
        layers.SerialDense(4, 0, "kernel_rows")(INPUTS[0])
    with pytest.raises(ValueError, match="Invalid serialization_dimension=rows, expected one of: 'input_columns'"):
        layers.SerialDense(4, 2, "rows")(INPUTS[0])


def attended(source: np.ndarray, from_lengths: np.ndarray, target: np.ndarray, to_lengths: np.ndarray) -> np.ndarray:
    """Returns the attention of two heads of size 3, with the weights of `transformer`, one sequence at a time."""
    kernels = [numbers(1, 6, seed=seed).reshape(2, 3) for seed in range(3)]
    out = np.zeros((*source.shape, 2, 3))
    for n in range(len(source)):
        real = np.arange(source.shape[1]) < from_lengths[n], np.arange(target.shape[1]) < to_lengths[n]
        for head in range(2):
            query = np.where(real[0], source[n], 0)[:, None] * kernels[0][head]
            key, value = (np.where(real[1], target[n], 0)[:, None] * kernel[head] for kernel in kernels[1:])
            weights = np.exp(query @ key.T * 0.5)
            out[n, :, head] = weights / weights.sum(1, keepdims=True) @ value
    return out


def transformer(**options: Any) -> Any:
    """A transformer for sequences of 4 and 5 numbers, with two heads of size 3 and known weights."""
    layer = layers.EffectiveTransformer(2, 8, True, 2, 3, layer_norm_output=False, **options)
    layer.build([(3, 4), (3,), (3, 5), (3,)])
    for seed, embedding in enumerate(layer._embeddings):
        embedding.set_weights([numbers(1, 6, seed=seed), np.zeros(6)])
    layer._scale.assign([0.5])
    return layer


SEQUENCES = [numbers(3, 4), np.asarray([4, 1, 2]), numbers(3, 5, seed=1), np.asarray([2, 5, 3])]


def test_attention_between_padded_sequences() -> None:
    layer = transformer()
    output, context = layer(SEQUENCES)
    wanted = attended(*SEQUENCES)
    np.testing.assert_allclose(context, wanted, rtol=1e-4, atol=1e-5)
    kernel = layer._output.kernel.numpy()
    np.testing.assert_allclose(output, wanted.reshape(3, -1) @ kernel, rtol=1e-3, atol=1e-4)
    mask = np.asarray([[True, False]] * 3)
    _, masked = layer([*SEQUENCES, mask])
    np.testing.assert_allclose(masked, wanted * mask[:, None, :, None], rtol=1e-4, atol=1e-5)
    dropping = transformer(attention_dropout_prob=0.5, output_dropout_prob=0.5)
    assert (np.asarray(dropping(SEQUENCES, training=True)[1]) == 0).mean() > 0.1
    np.testing.assert_allclose(dropping(SEQUENCES)[1], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({0: numbers(3, 4, 1)}, "from_sequences and to_sequences must be equal rank"),
        ({0: numbers(2, 4)}, "from_sequences and to_sequences must contain an equal number of sequences"),
        ({1: np.ones(4)}, "must have lengths equal to the number of sequences provided."),
        ({3: np.ones(4)}, "must have lengths equal to the number of sequences provided."),
        ({2: np.ones((3, 5), np.int32)}, "from_sequences and to_sequences must be equal types"),
        ({4: np.ones((3, 3), bool)}, "q_mask must have shape [num_sequences, num_attention_heads]"),
    ],
)
def test_sequences_that_do_not_go_together(change: dict[int, Any], text: str) -> None:
    inputs = [*SEQUENCES, np.ones((3, 2), bool)]
    for place, value in change.items():
        inputs[place] = value
    with pytest.raises(ValueError) as raised:
        transformer().call(inputs)
    assert text in str(raised.value)


def test_transformers_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="max_batch_size must be greater than sequences_per_iter"):
        layers.EffectiveTransformer(2, 1, sequences_per_iter=2)
    with pytest.raises(ValueError, match="must be built with either four or five input shapes."):
        layers.EffectiveTransformer(2, 1).build([(3, 4)])
    with pytest.raises(ValueError, match="EffectiveTransformer must take either four or five inputs."):
        transformer().call(SEQUENCES[:3])


LABELS = np.asarray([[1, 2, 1], [2, 2, 0]], np.int32)
LABEL_LENGTHS, DATA_LENGTHS = np.asarray([3, 2], np.int32), np.asarray([6, 5], np.int32)


@pytest.mark.parametrize("from_logits", [True, False])
def test_ctc_loss(from_logits: bool) -> None:
    logits = numbers(6, 2, 4)
    data = logits if from_logits else ops.log_softmax(logits)
    loss = layers.CTCLoss(3, from_logits)(LABELS, data, LABEL_LENGTHS, DATA_LENGTHS)
    wanted = tf.nn.ctc_loss(LABELS, logits, LABEL_LENGTHS, DATA_LENGTHS, logits_time_major=True, blank_index=3)
    assert tuple(loss.shape) == (1,)
    np.testing.assert_allclose(loss[0], tf.reduce_mean(wanted), rtol=1e-4)


@computed_by_tensorflow
def test_ctc_predictions() -> None:
    spelled = np.asarray([[1, 1, 3, 2, 3, 1], [2, 3, 2, 0, 0, 0]])
    logits = 10.0 * np.eye(4, dtype=np.float32)[spelled.T]
    for paths in (1, 2):
        layer = layers.CTCPredictionsLayer(3, beam_width=10, top_paths=paths, from_logits=True)
        np.testing.assert_array_equal(layer(logits, DATA_LENGTHS)[:, :3], [[1, 2, 1], [2, 2, 0]])
        assert (layer(logits, DATA_LENGTHS).numpy()[:, 3:] == 3).all()
    scores, lengths, labels = layers.CTCInferenceLayer(3, 10, 2)(tf.nn.log_softmax(logits), DATA_LENGTHS)
    assert (scores.shape, lengths.shape, labels.shape) == ((2, 2), (2, 2), (2, 2, 6))


@computed_by_tensorflow
def test_eight_bits() -> None:
    metadata = f8_ops.create_metadata(f8_ops.Format.F143)
    x = np.asarray([[1.0, 2.0], [3.0, -1.0], [0.1, 100.0]], np.float32)
    as_bytes = layers.ConvertToF8()(x, metadata)
    back = layers.ConvertFromF8()(as_bytes)
    assert back.dtype == tf.float16
    np.testing.assert_allclose(back, x, rtol=0.07)
    dense = layers.Dense(3, kernel_scale=-2, activation="relu", bias_initializer="ones")
    found = dense(as_bytes)
    kernel = f8_ops.QuarterTensor(dense.kernel_data.value, dense.kernel_metadata.value)
    wanted = back.numpy().astype(np.float32) @ f8_ops.convert_from_f8(kernel, tf.float32).numpy() + 1
    assert found.dtype == tf.float16
    np.testing.assert_allclose(found, np.maximum(wanted, 0), rtol=2e-2, atol=1e-2)
    found, wanted = both(*copied(layers.Dense(3), keras.layers.Dense(3), 3, 2), x)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
    with pytest.raises(ValueError, match=r"`kernel_scale` should be in the range .-32, 31.. The passed scale was 32."):
        layers.Dense(3, kernel_scale=32)


@computed_by_tensorflow
def test_an_eight_bit_layer_in_a_model(strategy: Any) -> None:
    x = numbers(4, 2)
    with strategy.scope():
        inputs = keras.Input((2,), batch_size=4)
        layer = layers.Dense(3, kernel_format=f8_ops.Format.F152)
        model = keras.Model(inputs, layer(layers.ConvertToF8()(inputs, f8_ops.create_metadata(f8_ops.Format.F143))))
    wanted = model(x)
    with device_work() as measured:
        found = model.predict(x, batch_size=4, verbose=0)
    assert measured.counts.executions == 1
    np.testing.assert_allclose(found, wanted, rtol=1e-2)


def test_identities() -> None:
    inputs = {"a": ops.convert_to_tensor([1.0, 2.0]), "b": ops.convert_to_tensor([3, 4])}
    for layer in (layers.RecomputationCheckpoint(), layers.AssumeEqualAcrossReplicas(inplace=True)):
        found = layer(inputs)
        assert sorted(found) == ["a", "b"]
        np.testing.assert_array_equal(found["b"], [3, 4])


SERIALISED: dict[str, Callable[[], Any]] = {
    "embedding": lambda: layers.Embedding(7, 3, "ones", serialization_factor=7),
    "dropout": lambda: layers.Dropout(0.25, noise_shape=[2, 1], seed=np.asarray([1, 2]), ref=False),
    "group": lambda: layers.GroupNormalization(3, 1, False, strided_channel_grouping=False, gamma_initializer="zeros"),
    "instance": lambda: layers.InstanceNormalization(1, epsilon=1e-4, trainable=False),
    "layer": lambda: layers.LayerNormalization([1, 2], scale=False),
    "dense": lambda: layers.SerialDense(4, 2, "kernel_rows", "relu", kernel_regularizer="l2"),
    "lstm": lambda: layers.PopnnLSTM(4, recurrent_activation="hard_sigmoid", time_major=True, options={"a": "b"}),
    "gru": lambda: layers.PopnnGRU(4, dropout=0.5, dropout_seed=[1, 2], reset_after=False, return_state=True),
    "transformer": lambda: layers.EffectiveTransformer(2, 8, qkv_activation="relu", output_initializer="ones"),
    "inference": lambda: layers.CTCInferenceLayer(1, 10, 2, True),
    "predictions": lambda: layers.CTCPredictionsLayer(1, 10, 2, True),
    "loss": lambda: layers.CTCLoss(2, True),
    "to bytes": lambda: layers.ConvertToF8(),
    "from bytes": lambda: layers.ConvertFromF8(tf.float32),
    "bytes": lambda: layers.Dense(3, f8_ops.Format.F152, 3, "zeros"),
    "equal": lambda: layers.AssumeEqualAcrossReplicas(True),
    "checkpoint": lambda: layers.RecomputationCheckpoint(name="kept"),
}


@pytest.mark.parametrize("name", SERIALISED)
def test_a_layer_is_serialised(name: str) -> None:
    layer = SERIALISED[name]()
    again = keras.layers.deserialize(keras.layers.serialize(layer))
    assert type(again) is type(layer)
    assert again.get_config() == layer.get_config()


def model_of(*stack: Any, shape: tuple[int, ...], dtype: str = "float32") -> keras.Model:
    """A model of some layers with a dense one on top."""
    return keras.Sequential([keras.Input(shape, dtype=dtype), *stack, keras.layers.Flatten(), keras.layers.Dense(2)])


DEVICE = {
    "text": lambda: model_of(layers.Embedding(7, 4), layers.LSTM(3), shape=(5,), dtype="int32"),
    "gru": lambda: model_of(layers.GRU(3, return_sequences=True), layers.LayerNorm(), shape=(5, 3)),
    "norms": lambda: model_of(
        layers.GroupNorm(2, center=False), layers.InstanceNorm(scale=False), layers.LayerNorm([1, 2]), shape=(4, 6)
    ),
    "dense": lambda: model_of(
        layers.RecomputationCheckpoint(), layers.SerialDense(4, 3, "input_rows_kernel_columns", "tanh"), shape=(3,)
    ),
}
SLOW = {"gru": pytest.mark.slow}
"""What is as an LSTM, which "text" has."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in DEVICE])
def test_training_on_the_device_is_as_on_the_host(name: str) -> None:
    shapes = {"text": (5,), "gru": (5, 3), "norms": (4, 6), "dense": (3,)}
    x = integers(7, 40, 5) if name == "text" else numbers(40, *shapes[name])
    Program(name, DEVICE[name], x, numbers(40, 2, seed=2), rtol=5e-4).check()


@pytest.mark.parametrize(
    "make", [lambda: layers.LSTM(4, dropout=0.5), lambda: layers.GRU(4, dropout=0.5)], ids=["LSTM", "GRU"]
)
def test_recurrent_layers_drop_elements_of_batches_of_any_size(make: Any) -> None:
    """In a model outside of the scope stock Keras runs them, and the size of its batches is open."""
    model = keras.Sequential([keras.Input((5, 3)), make()])
    model.compile("sgd", "mse")
    history = model.fit(np.ones((10, 5, 3)), np.ones((10, 4)), batch_size=4, verbose=0).history
    assert np.isfinite(history["loss"]).all()


def test_a_serialised_product_of_batches_of_any_size() -> None:
    model = keras.Sequential([keras.Input((4,)), layers.SerialDense(4, 2, "input_columns", kernel_initializer="ones")])
    model.compile("sgd", "mse")
    np.testing.assert_allclose(model.predict(np.ones((6, 4)), batch_size=4, verbose=0), np.full((6, 4), 4.0))


@pytest.mark.parametrize("masked", [False, True])
def test_attention_in_a_graph_with_an_open_batch(masked: bool) -> None:
    mask = [np.asarray([[True, False]] * 3)] if masked else []
    arrays = map(np.asarray, [*SEQUENCES, *mask])
    inputs = [each.astype(np.int32) if each.dtype.kind == "i" else each for each in arrays]  # JAX has no int64
    layer = transformer()
    symbolic = [keras.Input(each.shape[1:], dtype=each.dtype.name) for each in inputs]
    model = keras.Model(symbolic, layer(symbolic))
    assert [each.shape for each in model.outputs] == [(None, 2), (None, 4, 2, 3)]
    for found, wanted in zip(model.predict(inputs, batch_size=2, verbose=0), layer(inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
