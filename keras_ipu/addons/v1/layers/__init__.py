"""Recurrent layers of the addons for TensorFlow 1: those of `ipu.ops.rnn_ops`."""

from ipu_tf.ops import rnn_ops

PopnnAUGRU = rnn_ops.PopnnAUGRU
PopnnDynamicGRU = rnn_ops.PopnnDynamicGRU
PopnnDynamicLSTM = rnn_ops.PopnnDynamicLSTM
PopnnGRU = rnn_ops.PopnnGRU
PopnnLSTM = rnn_ops.PopnnLSTM

__all__ = ["PopnnAUGRU", "PopnnDynamicGRU", "PopnnDynamicLSTM", "PopnnGRU", "PopnnLSTM", "rnn_ops"]
