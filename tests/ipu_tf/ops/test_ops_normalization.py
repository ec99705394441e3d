"""Group, layer and instance normalisation against numpy and plain TensorFlow."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.ops import normalization_ops
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture
from tests.helpers.ops_parity import assert_parity

Strategy = ipu.ipu_strategy.IPUStrategyV1
tf1 = tf.compat.v1
EPSILON = 1e-3


def _group(channel: int, channels: int, groups: int, strided: bool) -> int:
    return channel % groups if strided else channel // (channels // groups)


def _reference(x: tf.Tensor, groups: int, axis: int, strided: bool) -> tf.Tensor:
    """Channel by channel, each with the statistics of its group."""
    wide = tf.cast(x, tf.float32)
    channels = x.shape[axis]
    slices = tf.unstack(wide, axis=axis)
    result = []
    for channel in range(channels):
        mine = _group(channel, channels, groups, strided)
        members = [slices[c] for c in range(channels) if _group(c, channels, groups, strided) == mine]
        stacked = tf.stack(members)
        axes = [0, *range(2, stacked.shape.rank)]
        mean, variance = tf.nn.moments(stacked, axes, keepdims=True)
        result.append((slices[channel] - mean[0]) / tf.sqrt(variance[0] + EPSILON))
    return tf.cast(tf.stack(result, axis=axis), x.dtype)


SHAPES = [((3, 4, 5, 6), -1), ((3, 6, 4, 5), 1), ((5, 24), -1), ((2, 3, 6), -1), ((2, 6, 2, 3, 2), -4)]


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("strided", [False, True])
def test_group_norm(strategy: Strategy, shape: tuple[int, ...], axis: int, strided: bool) -> None:  # noqa: F811
    x = np.random.default_rng(0).normal(2, 3, shape).astype(np.float32)
    assert_parity(
        strategy,
        lambda x: normalization_ops.group_norm(x, 3, axis, False, False, EPSILON, strided_channel_grouping=strided),
        lambda x: _reference(x, 3, axis % len(shape), strided),
        [x],
        2e-4,
    )


NORMS: dict[str, tuple[Callable[..., Any], int, str]] = {
    "group_norm": (normalization_ops.group_norm, 2, "GroupNorm"),
    "layer_norm": (normalization_ops.layer_norm, 1, "LayerNorm"),
    "instance_norm": (normalization_ops.instance_norm, 4, "InstanceNorm"),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", NORMS)
def test_statistics_of_halves(strategy: Strategy, name: str, training: bool) -> None:  # noqa: F811
    norm, groups, _ = NORMS[name]
    x = np.random.default_rng(1).normal(size=(2, 3, 3, 4)).astype(np.float16)
    assert_parity(
        strategy,
        lambda x: norm(x, center=False, scale=False, epsilon=EPSILON, training=training),
        lambda x: _reference(x, groups, 3, name == "group_norm"),
        [x],
        1e-2,
    )


@pytest.mark.parametrize("name", NORMS)
def test_variables_in_a_graph(strategy: Strategy, name: str) -> None:  # noqa: F811
    norm, _, scope = NORMS[name]
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [2, 3, 4])

        def computation(x: tf.Tensor) -> Any:
            initializers = {"gamma": tf1.constant_initializer(2.0), "beta": tf1.constant_initializer(3.0)}
            scaled = norm(x, param_initializers=initializers, variables_collections={"beta": ["mine", "variables"]})
            plain = norm(x, center=False, scale=False)
            gradients = tf.gradients(scaled, [x, *tf1.trainable_variables()])
            return scaled, plain, *gradients

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            compiled = ipu.ipu_compiler.compile(computation, [x])
        names = {variable.op.name for variable in tf1.global_variables()}
        assert names == {f"{scope}/gamma", f"{scope}/beta"}
        assert [variable.op.name for variable in tf1.get_collection("mine")] == [f"{scope}/beta"]
        session.run(tf1.global_variables_initializer())
        value = np.random.default_rng(2).normal(size=(2, 3, 4)).astype(np.float32)
        scaled, plain, of_x, *of_variables = session.run(compiled, {x: value})
    np.testing.assert_allclose(scaled, plain * 2 + 3, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_x, np.zeros_like(of_x), atol=1e-4)
    wanted = {"beta": np.full(4, 6.0), "gamma": plain.sum(axis=(0, 1))}
    for name_of_variable, gradient in zip(sorted(wanted), of_variables, strict=True):
        np.testing.assert_allclose(gradient, wanted[name_of_variable], rtol=1e-4, atol=1e-4)


def test_scopes_are_reused() -> None:
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [2, 3, 4])
        for reuse in (None, True):
            normalization_ops.group_norm(x, scope="mine", reuse=reuse)
        normalization_ops.group_norm(x, trainable=False)
        assert len(tf1.global_variables()) == 4
        assert [variable.op.name for variable in tf1.trainable_variables()] == ["mine/beta", "mine/gamma"]


ERRORS = [
    ((5, 2, 3), {"groups": 10}, "Invalid groups 10 for 3 channels."),
    ((5, 2, 4), {"groups": 3}, "4 channels is not commensurate with 3 groups."),
    ((5, 2, 4), {"channels_axis": 3}, "Axis is out of bounds."),
    ((5, 2, 4, 4), {"channels_axis": 2}, r"group norm only supports NCHW\(channel axis 1\) and NHWC"),
    ((5, None), {}, "has undefined channel dimension: 1."),
    (None, {}, "has undefined rank."),
]


@pytest.mark.parametrize(("shape", "options", "text"), ERRORS)
def test_bad_arguments_of_group_norm_raise(shape: Any, options: dict[str, Any], text: str) -> None:
    with tf.Graph().as_default(), pytest.raises(ValueError, match=text):
        normalization_ops.group_norm(tf1.placeholder(tf.float32, shape), **options)


@pytest.mark.parametrize("norm", [normalization_ops.layer_norm, normalization_ops.instance_norm])
@pytest.mark.parametrize(("shape", "text"), [(None, "undefined rank"), ((1, None), "undefined channel dimension")])
def test_layer_and_instance_norm_need_rank_and_channels(norm: Callable[..., Any], shape: Any, text: str) -> None:
    with tf.Graph().as_default(), pytest.raises(ValueError, match=text):
        norm(tf1.placeholder(tf.float32, shape))


def test_a_low_epsilon_is_warned_of() -> None:
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    tf.get_logger().addHandler(handler)
    try:
        normalization_ops.layer_norm(tf.ones([1, 2]), epsilon=1e-6)
    finally:
        tf.get_logger().removeHandler(handler)
    assert heard == [
        "layer_norm has an epsilon of 1e-06. Values below 1.53e-05 can give NaN in float16: choose a larger one."
    ]
