"""Training, evaluation and prediction steps as loops on the device, behind Keras's `fit`, `evaluate` and `predict`.

    batches --batch_feed--> step_loop.StepLoop --> device --step_outputs--> logs, predictions
                                |
                            DeviceStep: tensorflow_step.TensorFlowStep or jax_step.JaxStep

Enters: a step function of TensorFlow or JAX, an iterator of batches, the number of steps. Leaves: the outputs
of each step, and the step's variables or state after the last one.
`StepLoop` runs the loop for both; a `DeviceStep` traces the step (`trace`), passes its state in and out (`acquire`,
`commit`, `recover`) and gives its outputs their structure (`pack`). Start with `step_loop`.
"""
