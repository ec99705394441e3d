"""`tf.layers` and `tf.nn.rnn_cell` of TensorFlow 1: names, variables, numbers against Keras, on the device."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._compat import tf1_layers, tf1_rnn_cells
from ipu_tf._compat.tf1_batch_norm import batch_normalization
from tests.helpers.device_counts import device_work

tf1 = tf.compat.v1
IMAGES = np.random.default_rng(0).normal(1.0, 2.0, (6, 4, 4, 3)).astype(np.float32)
ROWS = IMAGES.reshape(6, -1)
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:UserWarning")


def evaluate(build: Any, *values: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
    """Returns the results of `build` for placeholders of some values, computed twice, and the variables after that."""
    with tf.Graph().as_default() as graph, tf1.Session() as session:
        results = build(*[tf1.placeholder(value.dtype, value.shape) for value in values])
        inputs = [operation.outputs[0] for operation in graph.get_operations() if operation.type == "Placeholder"]
        session.run(tf1.global_variables_initializer())
        with tf.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
            done = tf.no_op()
        for _ in range(2):
            got, _ = session.run((results, done), dict(zip(inputs, values, strict=True)))
        return got, {v.op.name: session.run(v) for v in tf1.global_variables()}


@pytest.mark.parametrize("name", sorted(tf1_layers.NAMES))
def test_every_name_of_tf_layers_is_there(name: str) -> None:
    assert callable(getattr(tf1_layers, name))
    assert name in dir(tf1_layers)


@pytest.mark.parametrize("name", sorted(tf1_rnn_cells.NAMES))
def test_every_name_of_tf_nn_rnn_cell_is_there(name: str) -> None:
    assert callable(getattr(tf1_rnn_cells, name))
    assert name in dir(tf1_rnn_cells)


@pytest.mark.parametrize("module", [tf1_layers, tf1_rnn_cells])
def test_names_that_are_not_there(module: Any) -> None:
    with pytest.raises(AttributeError, match="Nothing is not there"):
        _ = module.Nothing


def test_layers_make_and_share_variables_of_their_scopes() -> None:
    def build(x: tf.Tensor) -> tf.Tensor:
        x = tf1_layers.flatten(tf1_layers.conv2d(x, 2, 3))
        with tf1.variable_scope("shared", reuse=tf1.AUTO_REUSE):
            return tf1_layers.dense(tf1_layers.dense(x, 8, name="d"), 8, name="d")

    _, variables = evaluate(build, IMAGES)
    assert sorted(variables) == ["conv2d/bias", "conv2d/kernel", "shared/d/bias", "shared/d/kernel"]


CASES: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
    "images": (IMAGES, {}),
    "rows": (ROWS, {}),
    "another axis": (IMAGES, {"axis": 1}),
    "options": (ROWS, {"momentum": 0.5, "epsilon": 0.1, "scale": False}),
    "an axis that is not fused": (IMAGES, {"axis": 2}),
    "no offset, not fused": (IMAGES, {"center": False, "fused": False}),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_batch_normalization_against_keras(name: str, training: bool) -> None:
    values, options = CASES[name]
    got, variables = evaluate(lambda x: batch_normalization(x, training=training, **options), values)
    layer = keras.layers.BatchNormalization(**{key: v for key, v in options.items() if key != "fused"})
    for _ in range(2):
        expected = layer(values, training=training)
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(variables["batch_normalization/moving_mean"], layer.moving_mean, rtol=1e-4, atol=1e-6)
    # TensorFlow's fused kernel keeps the unbiased estimate; Keras 3 and everything not fused the batch's own.
    batch = values.var(axis=tuple(i for i in range(values.ndim) if i != options.get("axis", -1) % values.ndim))
    fused = values.ndim == 4 and options.get("fused") is not False and options.get("axis", -1) != 2
    count = values.size / batch.size if fused else np.inf
    rest = options.get("momentum", 0.99) ** 2 if training else 1.0
    expected_variance = rest + (1 - rest) * batch * (1 / (1 - 1 / count))
    np.testing.assert_allclose(variables["batch_normalization/moving_variance"], expected_variance, rtol=1e-4)


@pytest.mark.parametrize("training", [False, True])
def test_batch_normalization_of_several_axes_in_any_order(training: bool) -> None:
    """Parameters have the rank of the inputs, as in TensorFlow 1, and the statistics are those of the batch."""
    shape = (1, *IMAGES.shape[1:3], 1)
    start = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    options = {"axis": [2, 1], "beta_initializer": tf.constant_initializer(start), "momentum": 0.0}
    got, variables = evaluate(lambda x: batch_normalization(x, training=training, **options), IMAGES)
    assert {value.shape for value in variables.values()} == {shape}
    mean, variance = IMAGES.mean((0, 3), keepdims=True), IMAGES.var((0, 3), keepdims=True)
    normal = (IMAGES - mean) / np.sqrt(variance + 1e-3) if training else IMAGES / np.sqrt(1 + 1e-3)
    np.testing.assert_allclose(got, normal + start, rtol=1e-4, atol=1e-4)
    kept = variance if training else np.ones(shape)
    np.testing.assert_allclose(variables["batch_normalization/moving_variance"], kept, rtol=1e-4)


@pytest.mark.parametrize("training", [False, True])
def test_batch_normalization_by_a_tensor(training: bool) -> None:
    static, kept = evaluate(lambda x: batch_normalization(x, training=training), ROWS)
    got, variables = evaluate(lambda x, t: batch_normalization(x, training=t), ROWS, np.array(training))
    np.testing.assert_allclose(got, static, rtol=1e-5)
    np.testing.assert_allclose(variables["batch_normalization/moving_mean"], kept["batch_normalization/moving_mean"])


def test_batch_normalization_of_half_precision_keeps_its_statistics_in_float32() -> None:
    got, variables = evaluate(lambda x: batch_normalization(x, training=True), ROWS.astype(np.float16))
    assert got.dtype == np.float16
    assert {value.dtype for value in variables.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("option", [{"renorm": True}, {"virtual_batch_size": 2}, {"adjustment": lambda shape: shape}])
def test_what_batch_normalization_refuses(option: dict[str, Any]) -> None:
    with tf.Graph().as_default(), pytest.raises(ValueError, match=f"{next(iter(option))} is not provided"):
        batch_normalization(tf.constant(ROWS), **option)


def test_layers_and_cells_train_on_the_device() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()

    def body(x: tf.Tensor) -> Any:
        x = batch_normalization(tf1_layers.dense(x, 8, tf.nn.relu), training=True)
        cells = tf1_rnn_cells.MultiRNNCell([tf1_rnn_cells.LSTMCell(4), tf1_rnn_cells.GRUCell(4)])
        outputs, state = tf1.nn.dynamic_rnn(cells, tf.reshape(x, [6, 2, 4]), dtype=tf.float32)
        assert isinstance(state[0], tf1_rnn_cells.LSTMStateTuple)
        loss = tf.reduce_mean(tf.square(outputs - 0.5))
        with tf.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
            return loss, tf1.train.GradientDescentOptimizer(0.5).minimize(loss)

    try:
        with tf.Graph().as_default(), tf1.Session() as session:
            with ipu.scopes.ipu_scope("/device:IPU:0"):
                step = ipu.ipu_compiler.compile(body, [tf.constant(ROWS)])
            session.run(tf1.global_variables_initializer())
            with device_work() as work:
                losses = [session.run(step)[0] for _ in range(5)]
            moved = session.run([v for v in tf1.global_variables() if "moving_mean" in v.name])
    finally:
        ipu.config.reset_ipu_configuration()
    assert losses[-1] < losses[0]
    assert work.counts.executions == 5
    assert np.any(moved[0] != 0)
