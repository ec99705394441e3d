"""Compatibility module for `tf.nn.rnn_cell`, which TensorFlow no longer exports since Keras 3."""

from __future__ import annotations

from typing import Any

#: The classes that `tf.nn.rnn_cell` gave.
NAMES = frozenset(
    {
        "BasicLSTMCell",
        "BasicRNNCell",
        "DeviceWrapper",
        "DropoutWrapper",
        "GRUCell",
        "LSTMCell",
        "LSTMStateTuple",
        "MultiRNNCell",
        "RNNCell",
        "ResidualWrapper",
    }
)


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"tf.nn.rnn_cell.{name} is not there. tf.nn.rnn_cell has {', '.join(sorted(NAMES))}.")
    # TensorFlow gets this module as an attribute while it is being imported itself.
    from ipu_tf.lowering.tensorflow import tf1_private

    return getattr(tf1_private.RNN_CELLS, name)


def __dir__() -> list[str]:
    return sorted(NAMES)
