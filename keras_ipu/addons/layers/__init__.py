"""Keras layers of the addons, also found as `ipu_tensorflow_addons.keras.layers` and `ipu.keras.layers` (SDK 2.5).

Enters and leaves: tensors, as with any Keras layer. Start with `rnn`.
"""

from keras_ipu.addons.layers.assume_equal_across_replicas import AssumeEqualAcrossReplicas
from keras_ipu.addons.layers.ctc import CTCInferenceLayer, CTCLoss, CTCPredictionsLayer
from keras_ipu.addons.layers.dense import SerialDense
from keras_ipu.addons.layers.dropout import Dropout
from keras_ipu.addons.layers.effective_transformer import EffectiveTransformer
from keras_ipu.addons.layers.embedding_lookup import Embedding
from keras_ipu.addons.layers.f8_convert import ConvertFromF8, ConvertToF8
from keras_ipu.addons.layers.f8_dense import Dense
from keras_ipu.addons.layers.layer_normalization import LayerNormalization
from keras_ipu.addons.layers.normalization import GroupNormalization, InstanceNormalization
from keras_ipu.addons.layers.recomputation import RecomputationCheckpoint
from keras_ipu.addons.layers.rnn import GRU, LSTM

GroupNorm, InstanceNorm, LayerNorm = GroupNormalization, InstanceNormalization, LayerNormalization
PopnnLSTM, PopnnGRU = LSTM, GRU

__all__ = [
    "GRU",
    "LSTM",
    "AssumeEqualAcrossReplicas",
    "CTCInferenceLayer",
    "CTCLoss",
    "CTCPredictionsLayer",
    "ConvertFromF8",
    "ConvertToF8",
    "Dense",
    "Dropout",
    "EffectiveTransformer",
    "Embedding",
    "GroupNorm",
    "GroupNormalization",
    "InstanceNorm",
    "InstanceNormalization",
    "LayerNorm",
    "LayerNormalization",
    "PopnnGRU",
    "PopnnLSTM",
    "RecomputationCheckpoint",
    "SerialDense",
]
