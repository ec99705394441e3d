"""Sampled softmax and noise-contrastive estimation losses."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf._ops.candidate_sampling import log_uniform_candidate_sampler


def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    name: str = "sampled_softmax_loss",
    seed: int | None = None,
) -> tf.Tensor:
    """Cross entropy of a softmax over the labels and a sample of the other classes; for training only.

    Unlike `tf.nn.sampled_softmax_loss`, it keeps labels that happen to be in the sample.

    Args:
        weights: `[num_classes, dim]`, or a list with that as its only element.
        biases: `[num_classes]`.
        labels: `[batch, num_true]` whole numbers.
        inputs: `[batch, dim]`.
        num_sampled: how many classes are sampled for the batch.
        num_classes: how many classes there are.
        num_true: labels for one sample.
        sampled_values: sampled classes, expected counts of the labels, expected counts of the sampled classes; by
            default those of `log_uniform_candidate_sampler`.
        name: of the op.
        seed: of the sampler.

    Returns:
        `[batch]`.

    Raises:
        ValueError: if the weights are given in several parts.
    """
    with tf.name_scope(name or "sampled_softmax_loss"):
        logits, targets = _compute_sampled_logits(
            weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, seed=seed
        )
        return tf.nn.softmax_cross_entropy_with_logits(tf.stop_gradient(targets), logits)


def nce_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    name: str = "nce_loss",
) -> tf.Tensor:
    """Noise-contrastive loss: a sigmoid for each label and sampled class; for training only.

    Args and Raises as for `sampled_softmax_loss`.

    Returns:
        `[batch]`.
    """
    with tf.name_scope(name or "nce_loss"):
        logits, targets = _compute_sampled_logits(
            weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values
        )
        return tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(targets, logits), axis=1)


def _compute_sampled_logits(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    subtract_log_q: bool = True,
    name: str | None = None,
    seed: int | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Logits and targets of the labels, then of the sampled classes: `[batch, num_true + num_sampled]` each."""
    with tf.name_scope(name or "compute_sampled_logits"):
        inputs, biases = tf.convert_to_tensor(inputs), tf.convert_to_tensor(biases)
        labels = tf.cast(labels, tf.int64)
        if sampled_values is None:
            sampled_values = log_uniform_candidate_sampler(labels, num_true, num_sampled, True, num_classes, seed)
        sampled, true_count, sampled_count = (tf.stop_gradient(value) for value in sampled_values)
        classes = tf.concat([tf.reshape(labels, [-1]), tf.cast(sampled, tf.int64)], axis=0)
        chosen = tf.cast(tf.gather(_whole(weights), classes), inputs.dtype)
        offsets = tf.cast(tf.gather(biases, classes), inputs.dtype)
        count = tf.size(labels)
        of_labels = tf.reshape(chosen[:count], [-1, num_true, inputs.shape.as_list()[1]])
        true_logits = tf.einsum("bd,btd->bt", inputs, of_labels) + tf.reshape(offsets[:count], [-1, num_true])
        sampled_logits = tf.matmul(inputs, chosen[count:], transpose_b=True) + offsets[count:]
        if subtract_log_q:
            true_logits -= tf.cast(tf.math.log(true_count), inputs.dtype)
            sampled_logits -= tf.cast(tf.math.log(sampled_count), inputs.dtype)
        # The labels share the probability.
        targets = [tf.ones_like(true_logits) / num_true, tf.zeros_like(sampled_logits)]
        return tf.concat([true_logits, sampled_logits], axis=1), tf.concat(targets, axis=1)


def _whole(weights: Any) -> Any:
    parts = list(weights) if isinstance(weights, (list, tuple)) else [weights]
    if len(parts) != 1:
        raise ValueError(f"Wanted the weights in one part. Received: {len(parts)} parts; concatenate them.")
    return tf.convert_to_tensor(parts[0])
