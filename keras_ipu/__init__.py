"""Keras on the emulated IPU."""
