"""Layers for connectionist temporal classification (CTC): loss, beam search, predictions."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_ipu.addons.layers.ipu_layer import tensorflow_ops


@keras.saving.register_keras_serializable(package="keras_ipu")
class CTCInferenceLayer(keras.layers.Layer):
    """The most probable label sequences, by beam search.

    Args:
        blank_index: the class that stands for no label.
        beam_width: how many sequences are followed.
        top_paths: how many are returned.
        from_logits: whether the data are logits or logarithms of probabilities.
        kwargs: of `keras.layers.Layer`.
    """

    def __init__(
        self,
        blank_index: int = 0,
        beam_width: int = 100,
        top_paths: int = 1,
        from_logits: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.blank_index = blank_index
        self.beam_width = beam_width
        self.top_paths = top_paths
        self.from_logits = from_logits

    def call(self, data: Any, data_length: Any) -> Any:
        """Decodes the label sequences.

        Args:
            data: `[time, batch, classes]`.
            data_length: `[batch]`: how many time steps count.

        Returns:
            What `nn_ops.ctc_beam_search_decoder` gives for probabilities `[batch, paths]`, lengths `[batch, paths]`,
            and labels `[batch, paths, time]`; the most likely path first.
        """
        nn_ops = tensorflow_ops(self, "nn_ops")
        name = "ctc_beam_search_decoder" if self.from_logits else "ctc_beam_search_decoder_with_log_probs"
        decoder = getattr(nn_ops, name)
        return decoder(
            data, data_length, beam_width=self.beam_width, top_paths=self.top_paths, blank_index=self.blank_index
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        own = ("blank_index", "beam_width", "top_paths", "from_logits")
        return {**super().get_config(), **{name: getattr(self, name) for name in own}}


@keras.saving.register_keras_serializable(package="keras_ipu")
class CTCPredictionsLayer(CTCInferenceLayer):
    """The most probable label sequence, filled up with the blank label. Takes the arguments of `CTCInferenceLayer`."""

    def call(self, data: Any, data_length: Any) -> Any:
        """Decodes the label sequences.

        Args:
            data: `[time, batch, classes]`.
            data_length: `[batch]`: how many time steps count.

        Returns:
            `[batch, time]` labels.
        """
        # The most likely path is the first.
        _, lengths, labels = super().call(data, data_length)
        steps = ops.arange(labels.shape[2], dtype="int32")
        written = ops.less(steps, ops.cast(lengths[:, :1], "int32"))
        return ops.where(written, labels[:, 0], ops.cast(self.blank_index, labels.dtype))


@keras.saving.register_keras_serializable(package="keras_ipu")
class CTCLoss(keras.layers.Layer):
    """The mean over the batch of the CTC loss, as a tensor of shape [1].

    Args:
        blank_index: the class that stands for no label.
        from_logits: whether the data are logits or logarithms of probabilities.
        kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, blank_index: int = 0, from_logits: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.blank_index = blank_index
        self.from_logits = from_logits

    def call(self, labels: Any, data: Any, label_length: Any, data_length: Any) -> Any:
        """Returns the loss.

        Args:
            labels: `[batch, most labels]` whole numbers.
            data: `[time, batch, classes]`.
            label_length: `[batch]`: how many labels count.
            data_length: `[batch]`: how many time steps count.
        """
        return ops.reshape(ops.mean(self._of_samples(labels, data, label_length, data_length)), (1,))

    def _of_samples(self, labels: Any, data: Any, label_length: Any, data_length: Any) -> Any:
        if keras.backend.backend() != "tensorflow":
            # Logarithms of probabilities are logits, too.
            return ops.ctc_loss(labels, ops.swapaxes(data, 0, 1), label_length, data_length, self.blank_index)
        from ipu_tf.ops import nn_ops

        loss = nn_ops.ctc_loss_v2 if self.from_logits else nn_ops.ctc_loss_with_log_probs
        return loss(labels, data, label_length, data_length, self.blank_index)

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        own = {"blank_index": self.blank_index, "from_logits": self.from_logits}
        return {**super().get_config(), **own}
