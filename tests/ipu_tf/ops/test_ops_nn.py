"""Activations, CTC and sampled losses against plain TensorFlow, values and gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._ops import candidate_sampling
from ipu_tf.ops import nn_ops
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture
from tests.helpers.ops_parity import assert_close, assert_parity, on_device

Strategy = ipu.ipu_strategy.IPUStrategyV1
X = np.linspace(-6, 6, 61).reshape(1, 61)

ACTIVATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "gelu": (nn_ops.gelu, lambda x: tf.nn.gelu(x, approximate=True)),
    "exact gelu": (lambda x: nn_ops.gelu(x, approximate=False), lambda x: tf.nn.gelu(x, approximate=False)),
    "hard_sigmoid": (nn_ops.hard_sigmoid, lambda x: tf.nn.relu6(x * 0.2 * 6 + 3) / 6),
    "swish": (nn_ops.swish, tf.nn.swish),
    "softmax": (nn_ops.softmax, tf.nn.softmax),
    "stable softmax": (lambda x: nn_ops.softmax(x, stable=True), tf.nn.softmax),
}


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-5), (np.float16, 1e-2)])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(strategy: Strategy, name: str, dtype: type, rtol: float) -> None:  # noqa: F811
    assert_parity(strategy, *ACTIVATIONS[name], [X.astype(dtype)], rtol)


def test_gelu_of_large_halves_has_no_nan() -> None:
    x = tf.constant([300.0, -300.0, 60000.0], tf.float16)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = nn_ops.gelu(x)
    np.testing.assert_array_equal(y, np.array([300, 0, 60000], np.float16))
    np.testing.assert_array_equal(tape.gradient(y, x), np.array([1, 0, 1], np.float16))


def test_multi_conv_gives_what_the_function_gives(strategy: Strategy) -> None:  # noqa: F811
    rng = np.random.default_rng(0)
    images, filters = rng.normal(size=(2, 5, 5, 3)), rng.normal(size=(3, 3, 3, 4))
    arguments = [images.astype(np.float32), filters.astype(np.float32)]

    def convolutions(x: tf.Tensor, k: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"a": tf.nn.conv2d(x, k, 1, "SAME"), "b": tf.nn.conv2d(x, k, 2, "VALID")}

    decorated = nn_ops.multi_conv(options={"perConvReservedTiles": "50"})(convolutions)
    assert_parity(strategy, decorated, convolutions, arguments, 1e-4)
    assert "multi_conv.options" in [item.name for item in ipu.emulation.ignored_arguments()]


def test_multi_conv_options_have_to_be_a_dictionary() -> None:
    with pytest.raises(TypeError, match="Expected the multi_conv `options` to be a `dict`, but got 3 instead."):
        nn_ops.multi_conv(lambda x: x, options=3)(1.0)  # type: ignore[call-overload]


LABELS = np.array([[1, 2, 2, 3], [1, 1, 1, 1], [4, 0, 0, 0], [3, 4, 1, 2]], np.int32)
LABEL_LENGTHS, STEPS = np.array([4, 2, 0, 3], np.int32), np.array([9, 5, 3, 8], np.int32)


def _logits(dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(9, 4, 5)).astype(dtype)


@pytest.mark.parametrize("blank", [0, 4])
def test_ctc_loss(strategy: Strategy, blank: int) -> None:  # noqa: F811
    labels = LABELS if blank == 0 else (LABELS + 4) % 5
    assert_parity(
        strategy,
        lambda x: nn_ops.ctc_loss_v2(labels, x, LABEL_LENGTHS, STEPS, blank),
        lambda x: tf.nn.ctc_loss(labels, x, LABEL_LENGTHS, STEPS, blank_index=blank),
        [_logits()],
        1e-5,
    )


def test_ctc_loss_of_log_probabilities_has_the_gradient_of_logits(strategy: Strategy) -> None:  # noqa: F811
    assert_parity(
        strategy,
        lambda x: nn_ops.ctc_loss_with_log_probs(LABELS, tf.nn.log_softmax(x), LABEL_LENGTHS, STEPS, 0),
        lambda x: nn_ops.ctc_loss_v2(LABELS, x, LABEL_LENGTHS, STEPS, 0),
        [_logits()],
        1e-5,
    )


def test_ctc_loss_in_half_precision() -> None:
    half = nn_ops.ctc_loss_v2(LABELS, _logits(np.float16), LABEL_LENGTHS, STEPS, 0)
    single = nn_ops.ctc_loss_v2(LABELS, _logits(np.float16), LABEL_LENGTHS, STEPS, 0, out_dtype=tf.float32)
    assert (half.dtype, single.dtype) == (tf.float16, tf.float32)
    assert_close(half.numpy(), single.numpy(), 1e-3)


def test_labels_that_do_not_fit_cost_infinitely_much_and_have_no_gradient() -> None:
    x = tf.constant(_logits()[:3, :1])
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = nn_ops.ctc_loss_v2([[1, 1, 1]], x, [3], [3], 0)
    assert loss.numpy() == [np.inf]
    np.testing.assert_array_equal(tape.gradient(loss, x), np.zeros((3, 1, 5)))


@pytest.mark.parametrize(
    ("function", "name"), [(nn_ops.ctc_loss_v2, "logits"), (nn_ops.ctc_loss_with_log_probs, "data")]
)
def test_ctc_loss_is_not_narrower_than_its_input(function: Callable[..., Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"out_dtype cannot be float16 when dtype of {name} is float32."):
        function(LABELS, _logits(), LABEL_LENGTHS, STEPS, 0, out_dtype=tf.float16)


def _labellings(log_probabilities: np.ndarray, blank: int) -> list[tuple[float, list[int]]]:
    """Every labelling with its log probability, by adding up all alignments."""
    steps, classes = log_probabilities.shape
    totals: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(classes), repeat=steps):
        labels = tuple(key for key, _ in itertools.groupby(path) if key != blank)
        value = sum(log_probabilities[step, key] for step, key in enumerate(path))
        totals[labels] = float(np.logaddexp(totals.get(labels, -np.inf), value))
    return sorted(((value, list(labels)) for labels, value in totals.items()), reverse=True)


@pytest.mark.parametrize(("function", "blank"), [("ctc_beam_search_decoder", -1), ("with_log_probs", 1)])
def test_beam_search_finds_the_most_likely_labels(strategy: Strategy, function: str, blank: int) -> None:  # noqa: F811
    x = 2 * np.random.default_rng(3).normal(size=(5, 2, 3)).astype(np.float32)
    log_probabilities = tf.nn.log_softmax(x).numpy()
    given, decode = x, nn_ops.ctc_beam_search_decoder  # type: Any, Any
    if function == "with_log_probs":
        given, decode = log_probabilities, nn_ops.ctc_beam_search_decoder_with_log_probs
    found, lengths, labels = on_device(strategy, lambda x: decode(x, [5, 3], 64, 6, blank), given)
    for sample, steps in enumerate([5, 3]):
        wanted = _labellings(log_probabilities[:steps, sample], blank % 3)[:6]
        np.testing.assert_allclose(found[sample], [value for value, _ in wanted], rtol=1e-5)
        got = [labels[sample, path, : lengths[sample, path]].tolist() for path in range(6)]
        assert got == [path for _, path in wanted]


def test_a_narrow_beam_is_that_of_tensorflow() -> None:
    x = np.random.default_rng(4).normal(size=(12, 3, 6)).astype(np.float32)
    lengths = np.array([12, 7, 1], np.int32)
    found, found_lengths, found_labels = nn_ops.ctc_beam_search_decoder(x, lengths, 8, 2)
    labels, log_probabilities = tf.nn.ctc_beam_search_decoder(x, lengths, 8, 2)
    np.testing.assert_allclose(found, log_probabilities, rtol=1e-4)
    for path in range(2):
        dense = tf.sparse.to_dense(labels[path], default_value=-1).numpy()
        for sample in range(3):
            got = found_labels[sample, path, : int(found_lengths[sample, path])].numpy().tolist()
            assert got == [label for label in dense[sample] if label >= 0]


def test_more_paths_than_beams() -> None:
    with pytest.raises(ValueError, match="at most beam_width. Received: 3 paths, a width of 2"):
        nn_ops.ctc_beam_search_decoder(_logits(), STEPS, 2, 3)


WEIGHTS = np.random.default_rng(5).normal(size=(20, 4)).astype(np.float32)
BIASES = np.random.default_rng(6).normal(size=20).astype(np.float32)
INPUTS = np.random.default_rng(7).normal(size=(3, 4)).astype(np.float32)
TARGETS = np.array([[1, 4], [7, 2], [19, 0]], np.int64)
SAMPLED = (np.array([3, 1, 8], np.int64), np.full((3, 2), 0.3, np.float32), np.array([0.2, 0.5, 0.9], np.float32))


@pytest.mark.parametrize("name", ["sampled_softmax_loss", "nce_loss"])
def test_sampled_losses(strategy: Strategy, name: str) -> None:  # noqa: F811
    def loss(module: Any, **more: Any) -> Callable[..., Any]:
        return lambda weights, biases, inputs: getattr(module, name)(
            weights, biases, TARGETS, inputs, 3, 20, 2, sampled_values=SAMPLED, **more
        )

    stock = loss(tf.nn, remove_accidental_hits=False)
    assert_parity(strategy, loss(nn_ops), stock, [WEIGHTS, BIASES, INPUTS], 1e-5)


def test_a_loss_draws_its_own_sample(strategy: Strategy) -> None:  # noqa: F811
    def loss(weights: tf.Tensor, seed: int | None) -> tf.Tensor:
        return nn_ops.sampled_softmax_loss(weights, BIASES, TARGETS, INPUTS, 5, 20, 2, seed=seed)

    free = [on_device(strategy, lambda weights: loss(weights, None), WEIGHTS) for _ in range(2)]
    fixed = [on_device(strategy, lambda weights: loss(weights, 3), WEIGHTS) for _ in range(2)]
    assert not np.array_equal(*free)
    np.testing.assert_array_equal(*fixed)


def test_weights_in_parts() -> None:
    with pytest.raises(ValueError, match="Wanted the weights in one part. Received: 2 parts"):
        nn_ops.nce_loss([WEIGHTS, WEIGHTS], BIASES, TARGETS, INPUTS, 5, 20, 2)


SAMPLERS = {
    "uniform": (candidate_sampling.uniform_candidate_sampler, np.full(30, 1 / 30)),
    "log uniform": (
        candidate_sampling.log_uniform_candidate_sampler,
        np.log1p(1 / np.arange(1, 31)) / np.log(31),
    ),
}


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_are_true_to_their_expectation(strategy: Strategy, name: str, unique: bool) -> None:  # noqa: F811
    sampler, probabilities = SAMPLERS[name]
    labels = np.arange(30).reshape(1, 30)
    types = (tf.int64, tf.float32, tf.float32)
    sampled, expected, of_sampled = on_device(
        strategy,
        lambda numbers: tf.map_fn(lambda _: sampler(labels, 30, 10, unique, 30), numbers, types),
        np.arange(1000),
    )
    counts = np.bincount(sampled.reshape(-1), minlength=30) / 1000
    # Three standard deviations of a mean over a thousand samples of at most ten, and then some.
    np.testing.assert_allclose(counts, expected.mean(axis=(0, 1)), atol=0.15)
    np.testing.assert_allclose(of_sampled, np.take_along_axis(expected[:, 0], sampled, axis=1), rtol=1e-6)
    if unique:
        assert all(len(set(classes)) == 10 for classes in sampled.tolist())
        assert np.all(expected <= 1)
    else:
        np.testing.assert_allclose(expected[0, 0], 10 * probabilities, rtol=1e-4)


def test_too_many_distinct_classes() -> None:
    with pytest.raises(ValueError, match="Wanted at most 4 distinct classes, one each. Received: num_sampled=5"):
        candidate_sampling.uniform_candidate_sampler([[0]], 1, 5, True, 4)
