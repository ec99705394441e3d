"""fit, evaluate and predict of IPU models, for both of Keras's back ends.

    Keras's own fit --> epoch iterator: batches of one execution --> step function in a device loop --> logs

    common/       trainer.IPUTrainer     step_function.StepFunction                  written once, for both back ends
    tensorflow/   TensorFlowTrainer      TensorFlowStepFunction, state in variables
    jax/          JaxTrainer             JaxStepFunction, state passed in and out

Below them is one `ipu_tf._loops.step_loop.StepLoop` with a `TensorFlowStep` or `JaxStep`. What does not depend on a
back end belongs into `common/`. Start with `common/trainer.py`, then `common/step_function.py`.
"""
