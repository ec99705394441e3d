"""Helpers of functions that TensorFlow traces: arguments of loop bodies and queues, errors raised at run time."""
