"""Private API of TensorFlow 1 layers and recurrent cells that this package uses.

If TensorFlow moves one of these, `tests/project/test_private_api.py` names it.
"""

from __future__ import annotations

from tensorflow.python.keras.layers.legacy_rnn import rnn_cell_impl as _rnn_cells
from tensorflow.python.keras.legacy_tf_layers import base as _base
from tensorflow.python.keras.legacy_tf_layers import convolutional as _convolutional
from tensorflow.python.keras.legacy_tf_layers import core as _core
from tensorflow.python.keras.legacy_tf_layers import pooling as _pooling

#: The base of TensorFlow 1's layers: variables of variable scopes, named and reused as `tf.get_variable` does.
Layer, InputSpec = _base.Layer, _base.InputSpec
#: What `tf.layers` gave, less batch normalisation, which TensorFlow has dropped.
LAYER_MODULES = (_core, _convolutional, _pooling)
#: What `tf.nn.rnn_cell` gave.
RNN_CELLS = _rnn_cells
