"""Addons for TensorFlow 1."""
