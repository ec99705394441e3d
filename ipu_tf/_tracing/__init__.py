"""Helpers for tracing TensorFlow functions: arguments of loop bodies and queues, deferred errors."""
