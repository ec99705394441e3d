"""Training steps as loops on the device: what Keras's fit, evaluate and predict run.

    batches --loop_feed--> step_loop (TensorFlow step)      --> device --loop_rows--> logs, predictions
                           jax_step_loop (JAX step)

Enters: a step function of TensorFlow or JAX, an iterator of batches, the number of steps. Leaves: one row of results
for each step, and the step's variables or state after the last one.
Start with `step_loop`.
"""
