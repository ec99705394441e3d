"""Classification, question answering, multiple choice and sequence to sequence, on a backbone of KerasHub's.

Each is a functional Keras model of logits: compile it with `SparseCategoricalCrossentropy(from_logits=True)`, in an
`IPUStrategy`'s scope or outside of one, and split it as any other.
"""

from __future__ import annotations

from typing import Any

import keras

_INIT = {"kernel_initializer": keras.initializers.TruncatedNormal(stddev=0.02, seed=7)}


def sequence_classifier(backbone: Any, num_classes: int) -> keras.Model:
    """Makes a model that gives each text a class, by its last token: in a decoder the one that has seen all others.

    Args:
        backbone: a decoder, or an encoder with one, of token_ids and padding_mask, such as `GPT2Backbone`.
        num_classes: how many classes there are.

    Returns:
        A model of the backbone's inputs with logits `[batch, num_classes]`. Targets: `[batch]`.
    """
    last = _last(_sequence(backbone, backbone.input), backbone.input)
    return keras.Model(backbone.input, keras.layers.Dense(num_classes, name="classes", **_INIT)(last))


def token_classifier(backbone: Any, num_classes: int) -> keras.Model:
    """Makes a model that gives each token a class.

    Args:
        backbone: an encoder, or a decoder, of token_ids.
        num_classes: how many classes there are.

    Returns:
        A model of the backbone's inputs with logits `[batch, length, num_classes]`. Targets: `[batch, length]`.
    """
    logits = keras.layers.Dense(num_classes, name="classes", **_INIT)(_sequence(backbone, backbone.input))
    return keras.Model(backbone.input, logits)


def question_answerer(backbone: Any) -> keras.Model:
    """Makes a model that finds where the answer to a question begins and ends in a text.

    Args:
        backbone: an encoder of token_ids.

    Returns:
        A model of the backbone's inputs with logits `[batch, 2, length]`: of each place as the answer's first token,
        and as its last. Targets: `[batch, 2]`, both places.
    """
    spans = keras.layers.Dense(2, name="spans", **_INIT)(_sequence(backbone, backbone.input))
    return keras.Model(backbone.input, keras.layers.Permute((2, 1), name="places")(spans))


def multiple_choice(backbone: Any, choices: int, length: int) -> keras.Model:
    """Makes a model that chooses one of several texts.

    Args:
        backbone: an encoder of token_ids.
        choices: texts in a sample.
        length: tokens of a text.

    Returns:
        A model of the backbone's inputs, each `[batch, choices, length]`, with logits `[batch, choices]`. Targets:
        `[batch]`, the number of the text that is right.
    """
    inputs = {name: keras.Input((choices, length), dtype="int32", name=name) for name in backbone.input}
    texts = {name: keras.ops.reshape(tensor, (-1, length)) for name, tensor in inputs.items()}
    first = _sequence(backbone, texts)[:, 0, :]
    scores = keras.layers.Dense(1, name="scores", **_INIT)(first)
    return keras.Model(inputs, keras.ops.reshape(scores, (-1, choices)))


def sequence_to_sequence(backbone: Any) -> keras.Model:
    """Makes a model that continues a decoder's text, of an encoder's input.

    Args:
        backbone: an encoder and a decoder, such as `T5Backbone` or `WhisperBackbone`, whose table of tokens gives the
            logits too.

    Returns:
        A model of the backbone's inputs with logits `[batch, length, vocabulary]`. Targets: `[batch, length]`.
    """
    hidden = backbone(backbone.input)["decoder_sequence_output"]
    return keras.Model(backbone.input, backbone.token_embedding(hidden, reverse=True))


def _sequence(backbone: Any, inputs: Any) -> Any:
    """The backbone's output for each token; the decoder's, if it has one."""
    outputs = backbone(inputs)
    if not isinstance(outputs, dict):
        return outputs
    return outputs["decoder_sequence_output" if "decoder_sequence_output" in outputs else "sequence_output"]


def _last(hidden: Any, inputs: Any) -> Any:
    """The output for the last token of each text."""
    mask = inputs["decoder_padding_mask" if "decoder_padding_mask" in inputs else "padding_mask"]
    place = keras.ops.sum(keras.ops.cast(mask, "int32"), axis=1) - 1
    return keras.ops.take_along_axis(hidden, place[:, None, None], axis=1)[:, 0, :]
