"""The parts of the addons for TensorFlow 1."""
