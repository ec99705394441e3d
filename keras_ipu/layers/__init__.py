"""Keras layers that capture gradients in the backward pass.

Up to SDK 2.5 this module's name held the layers of today's addons; they are found here, too.
"""

import importlib
from typing import Any

from keras_ipu.layers.capture_upstream_gradients import CaptureActivationGradients, CaptureUpstreamGradients

__all__ = ["CaptureActivationGradients", "CaptureUpstreamGradients"]


def __getattr__(name: str) -> Any:
    addons = importlib.import_module("keras_ipu.addons.layers")
    if name in addons.__all__:
        return getattr(addons, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
