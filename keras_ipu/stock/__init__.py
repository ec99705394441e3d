"""Keras's private API, in one file for each subject: arrays, graphs of layers, hooks, models and optimizers."""
