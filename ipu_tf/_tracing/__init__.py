"""Helpers for building programs of TensorFlow functions: arguments of loop bodies and queues, errors raised later.

Enters: elements, arguments of queues, errors of a program's construction. Leaves: arguments for a loop's body, checked
arguments, errors that are raised when the program runs. What lowers a traced function is `ipu_tf.lowering.tensorflow`.
Start with `element_arguments`.
"""
