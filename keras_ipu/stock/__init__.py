"""Keras's private API, in one file for each subject: arrays, graphs of layers, patches, models and optimizers."""
