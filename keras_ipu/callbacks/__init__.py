"""Callbacks for Keras models on the device."""

from keras_ipu.callbacks.exact_resume import ExactResume

__all__ = ["ExactResume"]
