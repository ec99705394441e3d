"""CTC beam search decoder with fixed shapes."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from ipu_tf._ops.ctc_ops import LOG_ZERO


def ctc_beam_search_decoder(
    logits: Any,
    logits_lengths: Any,
    beam_width: int = 100,
    top_paths: int = 1,
    blank_index: int = -1,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The most likely labels given logits.

    Args:
        logits: `[most steps, batch, classes]`, float16 or float32.
        logits_lengths: `[batch]`: how many steps count.
        beam_width: how many prefixes are kept from step to step.
        top_paths: how many results a sample; at most the beam width.
        blank_index: the class that stands for no label; -1 is the last.
        name: of the op.

    Returns:
        Logarithms of probabilities `[batch, top_paths]`, the most likely first, as `tf.nn.ctc_beam_search_decoder`
        gives them, minus infinity where there are fewer results; their lengths `[batch, top_paths]`; labels
        `[batch, top_paths, most steps]`, of which only those within the length mean something.

    Raises:
        ValueError: if more paths are asked for than the beam is wide.
    """
    logits = tf.convert_to_tensor(logits)
    log_probabilities = tf.nn.log_softmax(tf.cast(logits, tf.float32))
    found = _search(log_probabilities, logits_lengths, beam_width, top_paths, blank_index, name)
    return tf.cast(found[0], logits.dtype), found[1], found[2]


def ctc_beam_search_decoder_with_log_probs(
    log_probs: Any,
    input_lengths: Any,
    beam_width: int = 100,
    top_paths: int = 1,
    blank_index: int = -1,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The most likely labels given logarithms of probabilities; otherwise as `ctc_beam_search_decoder`."""
    log_probs = tf.convert_to_tensor(log_probs)
    found = _search(tf.cast(log_probs, tf.float32), input_lengths, beam_width, top_paths, blank_index, name)
    return tf.cast(found[0], log_probs.dtype), found[1], found[2]


class _Beams(NamedTuple):
    """The prefixes kept, the most likely first.

    Attributes:
        labels: `[batch, width, steps]`, -1 behind the end.
        length: `[batch, width]`.
        blank: `[batch, width]`: the logarithm of the probability of the prefix, the last step being a blank.
        label: the same, the last step being the prefix's last label.
    """

    labels: tf.Tensor
    length: tf.Tensor
    blank: tf.Tensor
    label: tf.Tensor


def _search(
    log_probabilities: tf.Tensor, lengths: Any, width: int, top_paths: int, blank: int, name: str | None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    if top_paths > width:
        raise ValueError(f"top_paths must be at most beam_width. Received: {top_paths} paths, a width of {width}.")
    steps, batch, classes = log_probabilities.shape.as_list()
    lengths = tf.cast(tf.convert_to_tensor(lengths), tf.int32)
    with tf.name_scope(name or "ctc_beam_search"):

        def body(number: tf.Tensor, beams: _Beams) -> tuple[tf.Tensor, _Beams]:
            advanced = _advance(beams, tf.gather(log_probabilities, number), blank % classes)
            return number + 1, _choose(number < lengths, advanced, beams)

        start = _start(batch, width, steps)
        _, beams = tf.while_loop(lambda number, _: number < steps, body, (0, start), maximum_iterations=steps)
        total = _total(beams)[:, :top_paths]
        total = tf.where(total > LOG_ZERO / 2, total, -float("inf"))
        return total, beams.length[:, :top_paths], beams.labels[:, :top_paths]


def _start(batch: int, width: int, steps: int) -> _Beams:
    """One empty prefix; the other places are taken by prefixes of no probability."""
    nothing = tf.fill([batch, width], LOG_ZERO)
    blank = tf.concat([tf.zeros([batch, 1]), nothing[:, 1:]], axis=1)
    return _Beams(tf.fill([batch, width, steps], -1), tf.zeros([batch, width], tf.int32), blank, nothing)


def _total(beams: _Beams) -> tf.Tensor:
    return _sum(beams.blank, beams.label)


def _sum(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The logarithm of the sum of two probabilities."""
    return tf.maximum(a, b) + tf.math.log1p(tf.exp(-tf.abs(a - b)))


def _choose(condition: tf.Tensor, chosen: _Beams, other: _Beams) -> _Beams:
    def pick(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return tf.where(tf.reshape(condition, [-1] + [1] * (a.shape.rank - 1)), a, b)

    return _Beams(*(pick(a, b) for a, b in zip(chosen, other, strict=True)))


def _advance(beams: _Beams, emission: tf.Tensor, blank: int) -> _Beams:
    """One step: every prefix stays as it is or gets one label more; the most likely are kept."""
    width, classes = beams.length.shape.as_list()[1], emission.shape.as_list()[1]
    ends = _last_label(beams)
    extended = _extended(beams, ends, emission, blank)
    parents = _parents(beams, ends)
    by_parent = tf.gather(extended, tf.maximum(ends, 0), axis=2, batch_dims=1)
    arriving = tf.reduce_max(tf.where(parents, tf.transpose(by_parent, [0, 2, 1]), LOG_ZERO), axis=2)
    stay_blank = _total(beams) + emission[:, blank, None]
    again = tf.where(ends >= 0, tf.gather(emission, tf.maximum(ends, 0), axis=1, batch_dims=1), LOG_ZERO)
    stay_label = _sum(tf.maximum(beams.label + again, LOG_ZERO), arriving)
    # What led to a prefix that is kept anyway was added to it.
    merged = tf.reduce_any(parents[..., None] & tf.one_hot(ends, classes, True, False)[:, :, None], axis=1)
    extended = tf.where(merged, LOG_ZERO, extended)
    stayed = _sum(stay_blank, stay_label)
    candidates = tf.concat([stayed, tf.reshape(extended, [-1, width * classes])], axis=1)
    chosen, index = tf.math.top_k(candidates, width)
    return _kept(beams, chosen, index, stay_blank, stay_label, classes)


def _last_label(beams: _Beams) -> tf.Tensor:
    """`[batch, width]`; -1 for the empty prefix."""
    last = tf.gather(beams.labels, tf.maximum(beams.length - 1, 0), axis=2, batch_dims=2)
    return tf.where(beams.length > 0, last, -1)


def _extended(beams: _Beams, ends: tf.Tensor, emission: tf.Tensor, blank: int) -> tf.Tensor:
    """`[batch, width, classes]`: each prefix with one more label. A label twice needs a blank between."""
    classes = emission.shape.as_list()[1]
    same = tf.equal(ends[..., None], tf.range(classes))
    before = tf.where(same, beams.blank[..., None], _total(beams)[..., None])
    extended = tf.where(tf.equal(tf.range(classes), blank), LOG_ZERO, before + emission[:, None])
    return tf.maximum(extended, LOG_ZERO)


def _parents(beams: _Beams, ends: tf.Tensor) -> tf.Tensor:
    """`[batch, width, width]`: whether prefix i less its last label is prefix j, both being possible."""
    steps = beams.labels.shape.as_list()[2]
    behind = tf.range(steps) >= beams.length[..., None] - 1
    shortened = tf.where(behind, -1, beams.labels)
    equal = tf.reduce_all(tf.equal(shortened[:, :, None], beams.labels[:, None]), axis=3)
    possible = _total(beams) > LOG_ZERO / 2
    return equal & (ends >= 0)[:, :, None] & possible[:, :, None] & possible[:, None]


def _kept(
    beams: _Beams,
    chosen: tf.Tensor,
    index: tf.Tensor,
    stay_blank: tf.Tensor,
    stay_label: tf.Tensor,
    classes: int,
) -> _Beams:
    """The beams of the candidates `index`: first those that stay, then those extended, class by class."""
    width, steps = beams.labels.shape.as_list()[1:]
    extension = tf.maximum(index - width, 0)
    extends = index >= width
    source = tf.where(extends, extension // classes, tf.minimum(index, width - 1))
    labels, length, blank, label = (
        tf.gather(values, source, axis=1, batch_dims=1)
        for values in (beams.labels, beams.length, stay_blank, stay_label)
    )
    added = extends[..., None] & tf.equal(tf.range(steps), length[..., None])
    return _Beams(
        tf.where(added, (extension % classes)[..., None], labels),
        length + tf.cast(extends, tf.int32),
        tf.maximum(tf.where(extends, LOG_ZERO, blank), LOG_ZERO),
        tf.maximum(tf.where(extends, chosen, label), LOG_ZERO),
    )
