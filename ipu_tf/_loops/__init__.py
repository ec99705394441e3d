"""Training, evaluation and prediction steps as loops on the device, behind Keras's `fit`, `evaluate` and `predict`.

    batches --batch_feed--> step_loop (TensorFlow step)      --> device --step_outputs--> logs, predictions
                            jax_step_loop (JAX step)

Enters: a step function of TensorFlow or JAX, an iterator of batches, the number of steps. Leaves: the outputs
of each step, and the step's variables or state after the last one.
Start with `step_loop`.
"""
