"""`EffectiveTransformer`: multi-head attention over padded sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ipu_tf.emulation import record_ignored
from keras_ipu.addons.layers.dropout import Dropout
from keras_ipu.addons.layers.layer_normalization import LayerNormalization

_INITIALIZERS = {
    "embedding_initializer": "glorot_uniform",
    "embedding_bias_initializer": "zeros",
    "output_initializer": "glorot_uniform",
    "output_bias_initializer": "zeros",
}


@keras.saving.register_keras_serializable(package="keras_ipu")
class EffectiveTransformer(keras.layers.Layer):
    """Attention layer from `from` sequences to `to` sequences of scalars.

    Each number is embedded for each head; embeddings of padding are zeros, and take part in the attention as such.
    An IPU works on the sequences in chunks without padding; how they are cut has no effect on values.

    Args:
        output_layer_size: elements of an output.
        max_batch_size: the most sequences in a chunk; no effect on values.
        use_scale: whether a learned number scales the attention's scores.
        num_attention_heads: heads.
        attention_head_size: elements of an embedding.
        sequences_per_iter: the most whole sequences a chunk may hold, at most `max_batch_size`; no effect on values.
        qkv_activation: of the embeddings.
        attention_dropout_prob: the share of the heads' results that are dropped while training; None for no dropout.
        output_activation: of the output.
        output_dropout_prob: the share of the output that is dropped while training; None for no dropout.
        layer_norm_output: whether the output is normalised.
        kwargs: `embedding_initializer`, `embedding_bias_initializer`, `output_initializer`, `output_bias_initializer`,
            and those of `keras.layers.Layer`.

    Raises:
        ValueError: if `sequences_per_iter` is larger than `max_batch_size`.
    """

    def __init__(
        self,
        output_layer_size: int,
        max_batch_size: int,
        use_scale: bool = False,
        num_attention_heads: int = 1,
        attention_head_size: int = 1,
        sequences_per_iter: int = 1,
        qkv_activation: Any = None,
        attention_dropout_prob: float | None = None,
        output_activation: Any = None,
        output_dropout_prob: float | None = None,
        layer_norm_output: bool = True,
        **kwargs: Any,
    ) -> None:
        chosen = {name: kwargs.pop(name, default) for name, default in _INITIALIZERS.items()}
        super().__init__(**kwargs)
        if sequences_per_iter > max_batch_size:
            raise ValueError("max_batch_size must be greater than sequences_per_iter")
        record_ignored("EffectiveTransformer.sequences_per_iter", sequences_per_iter)
        self.output_layer_size = output_layer_size
        self.max_batch_size = max_batch_size
        self.use_scale = use_scale
        self.num_attention_heads = num_attention_heads
        self.attention_head_size = attention_head_size
        self.sequences_per_iter = sequences_per_iter
        self.qkv_activation = keras.activations.get(qkv_activation)
        self.attention_dropout_prob = attention_dropout_prob
        self.output_activation = keras.activations.get(output_activation)
        self.output_dropout_prob = output_dropout_prob
        self.layer_norm_output = layer_norm_output
        self.initializers = {name: keras.initializers.get(value) for name, value in chosen.items()}

    def build(self, input_shape: Sequence[Any]) -> None:
        """Creates the inner layers.

        Raises:
            ValueError: unless there are four or five shapes.
        """
        if len(input_shape) not in (4, 5):
            raise ValueError("EffectiveTransformer must be built with either four or five input shapes.")
        size = self.num_attention_heads * self.attention_head_size
        names = ("query_layer", "key_layer", "value_layer")
        self._embeddings = [self._dense(size, self.qkv_activation, "embedding", name) for name in names]
        for embedding in self._embeddings:
            embedding.build((None, 1))
        self._output = self._dense(self.output_layer_size, self.output_activation, "output", "output_layer")
        self._output.build((None, input_shape[0][1] * size))
        self._scale: Any = self.add_weight(shape=(1,), initializer="ones", name="scale") if self.use_scale else None
        self._attention_dropout = self._dropout(self.attention_dropout_prob)
        self._output_dropout = self._dropout(self.output_dropout_prob)
        self._norm = LayerNormalization() if self.layer_norm_output else None
        if self._norm is not None:
            self._norm.build((None, self.output_layer_size))
        self.built = True

    def _dropout(self, rate: float | None) -> Dropout | None:
        return None if rate is None else Dropout(rate)

    def _dense(self, units: int, activation: Any, kind: str, name: str) -> keras.layers.Dense:
        return keras.layers.Dense(
            units,
            activation=activation,
            kernel_initializer=_own(self.initializers[f"{kind}_initializer"]),
            bias_initializer=_own(self.initializers[f"{kind}_bias_initializer"]),
            name=name,
        )

    def call(self, inputs: Sequence[Any], training: bool | None = None) -> tuple[Any, Any]:
        """Computes the attention outputs.

        Args:
            inputs: `from` sequences `[n, length]`, their lengths `[n]` or `[n, 1]`, `to` sequences and their lengths;
                and optionally a mask `[n, heads]` that switches heads off.
            training: whether elements are dropped.

        Returns:
            The output `[n, output_layer_size]`, and what the heads found `[n, length, heads, head size]`.

        Raises:
            ValueError: if the inputs do not go together.
        """
        sequences, mask = self._checked(inputs)
        query, key, value = (
            self._embedded(layer, *sequences[place])
            for layer, place in zip(self._embeddings, ("from", "to", "to"), strict=True)
        )
        scores = ops.einsum("nqhs,nkhs->nhqk", query, key)
        if self._scale is not None:
            scores = scores * ops.cast(self._scale, scores.dtype)
        context = ops.einsum("nhqk,nkhs->nqhs", ops.softmax(scores), value)
        context = context * ops.cast(mask, context.dtype)[:, None, :, None]
        if self._attention_dropout is not None:
            context = self._attention_dropout(context, training=training)
        output = self._output(ops.reshape(context, (-1, math.prod(context.shape[1:]))))
        if self._output_dropout is not None:
            output = self._output_dropout(output, training=training)
        return output if self._norm is None else self._norm(output), context

    def _checked(self, inputs: Sequence[Any]) -> tuple[dict[str, tuple[Any, Any]], Any]:
        if len(inputs) not in (4, 5):
            raise ValueError("EffectiveTransformer must take either four or five inputs.")
        source, source_lengths, target, target_lengths = (ops.convert_to_tensor(one) for one in inputs[:4])
        if len(source.shape) != len(target.shape):
            raise ValueError("from_sequences and to_sequences must be equal rank")
        if _differ(source.shape[:1], target.shape[:1]):
            raise ValueError("from_sequences and to_sequences must contain an equal number of sequences")
        if _differ(source_lengths.shape[:1], source.shape[:1]) or _differ(source_lengths.shape, target_lengths.shape):
            raise ValueError(
                "from_sequence_lengths and to_sequence_lengths must have lengths equal to the number of sequences "
                "provided."
            )
        if source.dtype != target.dtype:
            raise ValueError("from_sequences and to_sequences must be equal types")
        mask = ops.convert_to_tensor(inputs[4]) if len(inputs) == 5 else ops.ones((1, self.num_attention_heads), "bool")
        if len(inputs) == 5 and _differ(mask.shape, (source.shape[0], self.num_attention_heads)):
            raise ValueError("q_mask must have shape [num_sequences, num_attention_heads]")
        return {"from": (source, source_lengths), "to": (target, target_lengths)}, mask

    def _embedded(self, layer: Any, sequences: Any, lengths: Any) -> Any:
        """`[n, length, heads, head size]`, zeros where there is padding."""
        length = sequences.shape[1]
        embedded = layer(ops.reshape(ops.cast(sequences, self.compute_dtype), (-1, 1)))
        embedded = ops.reshape(embedded, (-1, length, self.num_attention_heads, self.attention_head_size))
        real = ops.less(ops.arange(length, dtype="int32"), ops.reshape(ops.cast(lengths, "int32"), (-1, 1)))
        return embedded * ops.cast(real, embedded.dtype)[:, :, None, None]

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        sizes = ("output_layer_size", "max_batch_size", "num_attention_heads", "attention_head_size")
        others = ("use_scale", "attention_dropout_prob", "output_dropout_prob", "layer_norm_output")
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in (*sizes, *others, "sequences_per_iter")},
            "qkv_activation": keras.activations.serialize(self.qkv_activation),
            "output_activation": keras.activations.serialize(self.output_activation),
            **{name: keras.initializers.serialize(value) for name, value in self.initializers.items()},
        }


def _differ(shape: Sequence[Any], other: Sequence[Any]) -> bool:
    """Returns whether two shapes are not the same; what a graph leaves open may be."""
    return len(shape) != len(other) or any(
        one != two for one, two in zip(shape, other, strict=True) if None not in (one, two)
    )


def _own(initializer: Any) -> Any:
    """Returns an initializer for one layer alone: one without a seed gives the same numbers each time."""
    has_seed = hasattr(initializer, "get_config")
    return type(initializer).from_config(initializer.get_config()) if has_seed else initializer
