"""`TRACE_LOCK`: one thread at a time traces a program of the user's.

The trace of a Keras step puts functions of its own in the place of methods of the model, its metrics, losses and
optimizers, and takes them off at its end. Of two at once each would take the other's for the object's own.
A trace reads no feeds, so the lock is never held while a thread waits for another one's data. Graphs that are traced by
`tf.function` itself do not take it: TensorFlow holds a lock of the function's then, which a trace may want, too.
"""

from __future__ import annotations

import threading

TRACE_LOCK = threading.RLock()
