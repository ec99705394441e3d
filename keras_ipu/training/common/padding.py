"""Pads batches of `predict` that are smaller than others, for models that compute each sample by itself.

    samples           5 of a batch of 32, as all data      ►  8 rows, of which 5 are returned
                      the last 5 of 100, in batches of 32  ►  32 rows, by the program of the full batches

So `predict(x[:n])` for many n compiles a program for each power of two up to the batch size, not for each n.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_ipu.pipeline.run_checks import is_pipelined
from keras_ipu.stock import graphs as keras_graphs
from keras_ipu.training.common.partial_batches import batch_size

_OF_RANKS = (
    "AveragePooling",
    "Conv",
    "Cropping",
    "GlobalAveragePooling",
    "GlobalMaxPooling",
    "MaxPooling",
    "SpatialDropout",
    "UpSampling",
    "ZeroPadding",
)
_NAMES = """
    Activation Add Average BatchNormalization Bidirectional Concatenate Dense DepthwiseConv1D DepthwiseConv2D Dropout
    ELU Embedding Flatten GRU GRUCell GaussianDropout GaussianNoise GroupNormalization Identity InputLayer LSTM LSTMCell
    LayerNormalization LeakyReLU Masking Maximum Minimum Multiply Normalization PReLU Permute RMSNormalization ReLU
    RepeatVector Rescaling Reshape SeparableConv1D SeparableConv2D SimpleRNN SimpleRNNCell Softmax Subtract
    TimeDistributed
"""
_LAYERS = frozenset(
    getattr(keras.layers, name) for name in (*_NAMES.split(), *(f"{name}{n}D" for name in _OF_RANKS for n in (1, 2, 3)))
)
"""Keras's layers that compute each sample of a batch by itself, and draw no random numbers, unless they train."""
_MODELS = (keras.Sequential, keras_graphs.Functional)


Shapes = Sequence[tuple[int, ...]]
"""Shapes of the arrays of a batch that are not None, in order."""


def computes_each_sample(model: Any) -> bool:
    """Returns whether a model is known to predict each sample by itself: a graph of Keras's own layers.

    A layer that is not in the list, a function of the user's, or a call with `training=True` is not known to.

    >>> computes_each_sample(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]))
    True
    """
    if type(model).predict_step is not keras.Sequential.predict_step or "predict_step" in vars(model):
        return False
    return _is_known(model)


def may_pad(model: Any, replicas: int) -> bool:
    """Returns whether a model's batches may be padded in `predict`: it has one replica, no stages, and known layers."""
    return replicas == 1 and not is_pipelined(model) and computes_each_sample(model)


def _is_known(layer: Any) -> bool:
    """Returns whether a layer, and all that it is made of, computes each sample by itself."""
    if "call" in vars(layer) or getattr(layer, "stateful", False) or getattr(layer, "quantization_mode", None):
        return False
    if type(layer) in _MODELS:
        graph = keras_graphs.sequential_graph(layer) if type(layer) is keras.Sequential else layer
        nodes = [] if graph is None else keras_graphs.graph_nodes(graph)
        return bool(nodes) and all(map(_is_known_call, nodes)) and all(_is_known(each.operation) for each in nodes)
    if type(layer) is keras.layers.MultiHeadAttention:  # whose layers Keras makes
        return True
    within = keras_graphs.layers_within(layer)[1:]
    return type(layer) in _LAYERS and _is_keras(layer) and all(map(_is_known, within))


def _is_known_call(node: Any) -> bool:
    """Returns whether a call in a graph does not train, and its tensors have more dimensions than that of the batch."""
    tensors = [*node.input_tensors, *node.outputs]
    return not node.arguments.kwargs.get("training") and all(len(tensor.shape) > 1 for tensor in tensors)


def _is_keras(layer: Any) -> bool:
    """Returns whether a layer's functions are Keras's, and none of its axes may be that of the batch."""
    functions = [value for name, value in vars(layer).items() if name.endswith("activation") and callable(value)]
    axes = [np.atleast_1d(value) for name in ("axis", "axes") if (value := getattr(layer, name, None)) is not None]
    ours = (getattr(each, "__module__", None) or type(each).__module__ for each in functions)
    return all(name.startswith("keras.") for name in ours) and all(((axis > 0) | (axis == -1)).all() for axis in axes)


def padded_size(samples: int, batch_size: int) -> int:
    """Returns how many rows data of fewer samples than a batch are padded to.

    >>> [padded_size(samples, 32) for samples in (1, 5, 8, 20, 32, 100)]
    [1, 8, 8, 32, 32, 32]
    """
    return min(batch_size, 1 << max(0, samples - 1).bit_length())


def fits_padding(batch: Any, full: Shapes) -> bool:
    """Returns whether a smaller batch may be padded: its arrays have its samples, or no more than one row in any batch.

    Args:
        batch: of NumPy arrays and `None`s.
        full: the shape of each array of a full batch.

    >>> full = [(8, 3), (1, 3), ()]
    >>> [fits_padding((np.zeros((5, 3)), np.zeros((rows, 3)), np.zeros(())), full) for rows in (1, 4)]
    [True, False]
    """
    size, rows = batch_size(batch), next((shape[0] for shape in full if shape), 1)
    arrays = (leaf for leaf in tf.nest.flatten(batch) if leaf is not None)
    sides = [(array.shape[0], shape[0]) for array, shape in zip(arrays, full, strict=True) if shape]
    return 0 < size < rows and all(each in ((size, rows), (1, 1)) for each in sides)


def padded(batch: Any, full: Shapes) -> Any:
    """Returns a batch that fits, with its last sample repeated up to the samples of a full one.

    Args:
        batch: of NumPy arrays and `None`s.
        full: the shape of each array of a full batch.

    >>> padded((np.array([[1], [2]]), None, np.array(7)), [(4, 1), ()])[0].tolist()
    [[1], [2], [2], [2]]
    """
    shapes = iter(full)
    return tf.nest.map_structure(lambda leaf: None if leaf is None else _repeated(leaf, next(shapes)), batch)


def _repeated(leaf: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if leaf.shape == shape:
        return leaf
    return np.concatenate([leaf, np.repeat(leaf[-1:], shape[0] - len(leaf), axis=0)])
