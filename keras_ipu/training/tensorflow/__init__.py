"""fit, evaluate and predict with Keras's TensorFlow back end: a traced `train_step` in a device loop.

Enters: a model's `train_step` on TensorFlow, batches. Leaves: logs or predictions; variables stay on the device.
Start with `trainer`, then `step_functions`.
"""
