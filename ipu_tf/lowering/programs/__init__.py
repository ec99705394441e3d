"""Builds device programs (`ipu_tf.device.program`) from traced TensorFlow functions, and graph ops that run them.

    traced function --build / step_program--> Program --taped_function (eager) | graph_op (graphs)--> results

Keras's steps and feeds are a loop made by `step_program`; other functions are cut at their loops by `build`.
`tensorflow_errors` turns errors of the device into TensorFlow's. Start with `build`.
Enters: a StableHLO module with its captures. Leaves: a `Program`, and functions or graph ops that run it.
"""
