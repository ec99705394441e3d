"""TensorFlow 1 sessions and eager ops on the device, without `ipu_compiler.compile`.

    Session.run / eager op with tf.device("/device:IPU:0") --> programs made of the ops that are placed on an IPU

Enters: ops placed on an IPU. Leaves: their results; ops that cannot run on the device are refused.
Start with `session_devices`.
"""

import tensorflow  # noqa: F401 - first: its import installs `session_devices`, which must be whole then
