"""`GradientCaptureContext` and `GradientCaptureTape`: collect captured gradients.

with GradientCaptureTape() as tape:
    y = tf.tanh(capture_upstream_gradients(x, tag="tanh"))
gradient = tape.gradient(y, x)
tape.captured_gradients["tanh"]      # [dy/dx as it arrived]
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import tensorflow as tf

from ipu_tf._state.registry import register_state

_NO_CONTEXT = (
    "tensorflow.python.ipu.ops.grad_util_ops.capture_upstream_gradients may only be used within the context of "
    "tensorflow.python.ipu.eager.GradientCaptureTape or GradientCaptureContext."
)

_lock = threading.Lock()
_open: list[weakref.ref[GradientCaptureContext]] = register_state("open captures of gradients", [])


def num_gradient_collection_tapes() -> int:
    """Counts the contexts and tapes that are entered, in use, and whose captured gradients were not read."""
    return len(_open_contexts())


class GradientCaptureContext:
    """A context manager that keeps the gradients that arrive at `capture_upstream_gradients`.

    Gradients computed after it is entered are kept until `captured_gradients` is first read, by the innermost such
    context of the thread, or of all if it has none. Read it in the function that computed the gradients.

    Example:
        >>> import tensorflow as tf
        >>> from ipu_tf.eager.backprop import GradientCaptureContext
        >>> from ipu_tf.ops.grad_util_ops import capture_upstream_gradients
        >>> @tf.function
        ... def program(x):
        ...     with GradientCaptureContext() as context:
        ...         y = 3.0 * capture_upstream_gradients(x * x, tag="square")
        ...         gradient = tf.gradients(y, x)
        ...     return context.captured_gradients
        >>> {tag: [float(g) for g in kept] for tag, kept in program(tf.constant(2.0)).items()}
        {'square': [3.0]}
    """

    def __init__(self) -> None:
        self._captured: dict[str, list[tf.Tensor]] = {}
        self._thread = threading.get_ident()

    def __enter__(self) -> GradientCaptureContext:
        self._thread = threading.get_ident()
        with _lock:
            _open.append(weakref.ref(self))
        return self

    def __exit__(self, *exception: Any) -> None:
        """Leaves gradients to be captured: they are often computed after the context."""

    @property
    def captured_gradients(self) -> dict[str, list[tf.Tensor]]:
        """The gradients by tag, in the order of arrival; reading it ends the capture.

        Raises:
            ValueError: if it is written to.
        """
        self._close()
        return self._captured

    @captured_gradients.setter
    def captured_gradients(self, value: Any) -> None:
        raise ValueError("captured_gradients is read only.")

    def _close(self) -> None:
        with _lock:
            _open[:] = [reference for reference in _open if reference() not in (None, self)]

    def _keep(self, tag: str, gradients: list[tf.Tensor]) -> None:
        self._captured.setdefault(tag, []).extend(gradients)


class GradientCaptureTape(tf.GradientTape, GradientCaptureContext):
    """A `tf.GradientTape` that keeps the gradients that arrive at `capture_upstream_gradients`.

    Args:
        persistent: whether `gradient` may be called more than once; gradients are captured until
            `captured_gradients` is read. Without it, the first call ends the capture.
        watch_accessed_variables: whether trainable variables are watched.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        tf.GradientTape.__init__(self, persistent=persistent, watch_accessed_variables=watch_accessed_variables)
        GradientCaptureContext.__init__(self)
        self._is_persistent = persistent

    def __enter__(self) -> GradientCaptureTape:
        tf.GradientTape.__enter__(self)
        GradientCaptureContext.__enter__(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        tf.GradientTape.__exit__(self, *exception)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: tf.UnconnectedGradients = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """As `tf.GradientTape.gradient`; what arrives on the way is then in `captured_gradients`."""
        gradients = super().gradient(target, sources, output_gradients, unconnected_gradients)
        if not self._is_persistent:
            self._close()
        return gradients


def record_captured_gradients(tag: str, gradients: list[tf.Tensor]) -> None:
    """Records gradients in the innermost context of this thread that captures them, or of all threads if it has none.

    Args:
        tag: under which they are kept, after those that are there.
        gradients: the gradients.

    Raises:
        RuntimeError: if no context waits.
    """
    contexts = _open_contexts()
    if not contexts:
        raise RuntimeError(_NO_CONTEXT)
    own = [context for context in contexts if context._thread == threading.get_ident()]
    (own or contexts)[-1]._keep(tag, gradients)


def _open_contexts() -> list[GradientCaptureContext]:
    with _lock:
        found = [context for context in (reference() for reference in _open) if context is not None]
        _open[:] = [weakref.ref(context) for context in found]
    return found
