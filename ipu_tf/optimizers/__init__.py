"""Optimizers that wrap `tf.compat.v1.train.Optimizer`."""
