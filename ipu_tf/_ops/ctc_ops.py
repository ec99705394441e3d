"""Connectionist temporal classification (CTC) loss and its gradient."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

#: Stands for the logarithm of zero: infinity would give NaN when subtracted from itself.
LOG_ZERO = -1e30


def ctc_loss_v2(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    blank_index: int,
    out_dtype: tf.DType | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """CTC loss of logits.

    Args:
        labels: `[batch, most labels]` whole numbers.
        logits: `[most steps, batch, classes]`, float16 or float32.
        label_length: `[batch]`: how many labels count.
        logit_length: `[batch]`: how many steps count.
        blank_index: the class that stands for no label.
        out_dtype: of the loss; by default that of the logits.
        name: of the op.

    Returns:
        `[batch]`; infinite, with a gradient of zero, where there are too few steps for the labels.

    Raises:
        ValueError: if float16 is asked for float32 logits.
    """
    logits = tf.convert_to_tensor(logits)
    dtype = _out_dtype(logits.dtype, out_dtype, "logits")
    with tf.name_scope(name or "ctc_loss"):
        log_probabilities = tf.nn.log_softmax(tf.cast(logits, tf.float32))
        return tf.cast(_loss(labels, log_probabilities, label_length, logit_length, blank_index), dtype)


def ctc_loss_with_log_probs(
    labels: Any,
    data: Any,
    label_length: Any,
    data_length: Any,
    blank_index: int,
    out_dtype: tf.DType | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """CTC loss of logarithms of probabilities; otherwise as `ctc_loss_v2`.

    The gradient is the probabilities less the expected ones, as it would be for logits; taking it on through
    `tf.nn.log_softmax` does not change it.

    Args:
        labels: `[batch, most labels]` whole numbers.
        data: `[most steps, batch, classes]` logarithms of probabilities, float16 or float32.
        label_length: `[batch]`.
        data_length: `[batch]`.
        blank_index: the class that stands for no label.
        out_dtype: of the loss; by default that of the data.
        name: of the op.

    Returns:
        `[batch]`.

    Raises:
        ValueError: if float16 is asked for float32 data.
    """
    data = tf.convert_to_tensor(data)
    dtype = _out_dtype(data.dtype, out_dtype, "data")
    with tf.name_scope(name or "ctc_loss"):
        return tf.cast(_loss(labels, tf.cast(data, tf.float32), label_length, data_length, blank_index), dtype)


def _out_dtype(dtype: tf.DType, out_dtype: tf.DType | None, name: str) -> tf.DType:
    chosen = tf.as_dtype(out_dtype or dtype)
    if dtype == tf.float32 and chosen == tf.float16:
        raise ValueError(f"out_dtype cannot be float16 when dtype of {name} is float32.")
    return chosen


def _loss(labels: Any, log_probabilities: tf.Tensor, label_length: Any, data_length: Any, blank: int) -> tf.Tensor:
    labels, label_length, data_length = (
        tf.cast(tf.convert_to_tensor(values), tf.int32) for values in (labels, label_length, data_length)
    )

    @tf.custom_gradient
    def loss(log_probabilities: tf.Tensor) -> Any:
        value, gradient = ctc_loss_and_gradient(labels, log_probabilities, label_length, data_length, blank)
        return value, lambda upstream: upstream[:, None] * gradient

    return loss(log_probabilities)


def ctc_loss_and_gradient(
    labels: tf.Tensor, log_probabilities: tf.Tensor, label_length: tf.Tensor, data_length: tf.Tensor, blank: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """The loss `[batch]` and its gradient for logits, `[steps, batch, classes]`, float32.

    Args:
        labels: `[batch, most labels]` int32.
        log_probabilities: `[steps, batch, classes]` float32.
        label_length: `[batch]` int32.
        data_length: `[batch]` int32.
        blank: the class that stands for no label.
    """
    classes = log_probabilities.shape.as_list()[-1]
    lattice = _Lattice.of(labels, label_length, blank % classes)
    emitted = tf.gather(tf.transpose(log_probabilities, [1, 0, 2]), lattice.symbols, axis=2, batch_dims=1)
    emitted = tf.transpose(emitted, [1, 0, 2])
    steps = tf.range(tf.shape(emitted)[0])
    alphas, betas = lattice.forward(emitted, steps, data_length), lattice.backward(emitted, steps, data_length)
    total = tf.reduce_logsumexp(alphas[-1] + tf.where(lattice.last, 0.0, LOG_ZERO), axis=1)
    possible = total > LOG_ZERO / 2
    counts = (steps[:, None] < data_length) & possible
    occupied = tf.where(counts[..., None], tf.exp(alphas + betas - total[:, None]), 0.0)
    expected = tf.einsum("tbs,bsc->tbc", occupied, tf.one_hot(lattice.symbols, classes))
    gradient = tf.where(counts[..., None], tf.exp(log_probabilities) - expected, 0.0)
    return tf.where(possible, -total, float("inf")), gradient


@dataclasses.dataclass(frozen=True)
class _Lattice:
    """The states an alignment goes through: a blank, the first label, a blank, the second label, and so on.

    Attributes:
        symbols: `[batch, states]`: the class of each state.
        skips: `[batch, states]`: 0 where a state may follow the one before the last, else the logarithm of zero.
        first: `[batch, states]`: where an alignment may begin.
        last: `[batch, states]`: where an alignment may end.
    """

    symbols: tf.Tensor
    skips: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor

    @staticmethod
    def of(labels: tf.Tensor, length: tf.Tensor, blank: int) -> _Lattice:
        """The lattice of each sample."""
        batch, most = labels.shape.as_list()
        blanks = tf.fill([batch, most, 1], blank)
        pairs = tf.reshape(tf.concat([blanks, labels[..., None]], axis=2), [batch, 2 * most])
        symbols = tf.concat([pairs, blanks[:, :1, 0]], axis=1)
        before = tf.pad(symbols[:, :-2], [[0, 0], [2, 0]], constant_values=blank)
        skips = tf.where(tf.not_equal(symbols, blank) & tf.not_equal(symbols, before), 0.0, LOG_ZERO)
        state, end = tf.range(2 * most + 1), 2 * length[:, None]
        first = (state < 2) & (state <= end)
        return _Lattice(symbols, skips, first, tf.equal(state, end) | tf.equal(state, end - 1))

    def forward(self, emitted: tf.Tensor, steps: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        """Forward log probabilities: of reaching each state at each step, `[steps, batch, states]`."""

        def step(alpha: tf.Tensor, now: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            number, emission = now
            begun = tf.where(self.first, 0.0, LOG_ZERO)
            reached = tf.where(tf.equal(number, 0), begun, self._step_on(alpha)) + emission
            return tf.where((number < length)[:, None], reached, alpha)

        return tf.scan(step, (steps, emitted), tf.fill(tf.shape(self.skips), LOG_ZERO))

    def backward(self, emitted: tf.Tensor, steps: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        """Backward log probabilities: of the rest after each state at each step, `[steps, batch, states]`."""
        following = tf.concat([emitted[1:], emitted[-1:]], axis=0)

        def step(beta: tf.Tensor, now: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            number, emission = now
            before = self._step_back(beta + emission)
            return tf.where((number < length - 1)[:, None], before, tf.where(self.last, 0.0, LOG_ZERO))

        return tf.scan(step, (steps, following), tf.fill(tf.shape(self.skips), LOG_ZERO), reverse=True)

    def _step_on(self, alpha: tf.Tensor) -> tf.Tensor:
        moved = tf.pad(alpha[:, :-1], [[0, 0], [1, 0]], constant_values=LOG_ZERO)
        skipped = tf.pad(alpha[:, :-2], [[0, 0], [2, 0]], constant_values=LOG_ZERO) + self.skips
        return tf.reduce_logsumexp(tf.stack([alpha, moved, skipped]), axis=0)

    def _step_back(self, beta: tf.Tensor) -> tf.Tensor:
        moved = tf.pad(beta[:, 1:], [[0, 0], [0, 1]], constant_values=LOG_ZERO)
        skipped = tf.pad((beta + self.skips)[:, 2:], [[0, 0], [0, 2]], constant_values=LOG_ZERO)
        return tf.reduce_logsumexp(tf.stack([beta, moved, skipped]), axis=0)
