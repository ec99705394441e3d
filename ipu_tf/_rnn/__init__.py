"""Recurrent cells and layers behind `ipu_tf.ops.rnn_ops`.

Enters: sequences of shape [time, batch, features]. Leaves: the outputs of each time step and the final state.
"""
