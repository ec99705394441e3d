"""Captures gradients in TensorFlow training steps and passes them to the optimizer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from keras_ipu.optimizers.inner_optimizer_calls import takes_captured_grads


def capturing_step(model: Any) -> Callable[[Any], Any]:
    """Returns a model's `train_step` that passes captured gradients to an optimizer that takes them.

    Without layers that capture, it is the `train_step`.
    """

    def step(data: Any) -> Any:
        with _captured_for(model.optimizer):
            return model.train_step(data)

    return step


@contextlib.contextmanager
def _captured_for(optimizer: Any) -> Iterator[None]:
    """Context in which `optimizer.apply_gradients` gets `captured_grads`, if it takes them."""
    from ipu_tf.eager import backprop

    with backprop.GradientCaptureContext() as context:
        if optimizer is None or not takes_captured_grads(optimizer):
            yield
            # A context is open until its gradients are asked for.
            _ = context.captured_gradients
            return
        stock, others = optimizer.apply_gradients, vars(optimizer).get("apply_gradients")

        def apply_gradients(*args: Any, **kwargs: Any) -> Any:
            return stock(*args, **{"captured_grads": context.captured_gradients, **kwargs})

        # Keras's training step does not pass captured gradients: it calls the method found on the object, which may
        # already be replaced to split the weight update.
        optimizer.apply_gradients = apply_gradients
        try:
            yield
        finally:
            if others is None:
                del optimizer.apply_gradients
            else:
                optimizer.apply_gradients = others
