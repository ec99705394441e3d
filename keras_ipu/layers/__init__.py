"""Keras layers that capture gradients on their way back."""

from keras_ipu.layers.capture_upstream_gradients import CaptureActivationGradients, CaptureUpstreamGradients

__all__ = ["CaptureActivationGradients", "CaptureUpstreamGradients"]
