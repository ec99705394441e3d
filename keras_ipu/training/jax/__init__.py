"""fit, evaluate and predict with Keras's JAX back end: a traced `train_step` in a device loop.

Enters: a model's `train_step` on JAX, its state, batches. Leaves: logs or predictions, and the state after them.
Start with `trainer`, then `step_function`.
"""
