"""fit, evaluate and predict of IPU models, for both of Keras's back ends.

    stock.patches.install_trainer        the methods of IPUTrainer replace Keras's, when a scope is first entered
    fit ─► IPUTrainer._run_epochs        checks, Ctrl-C, the callback that syncs variables; then Keras's own fit
      └► IPUEpochIterator                gives an ElementIterator for each Keras execution: its feed and its steps
      └► StepFunction                    the train function: step split, and a StepLoop for the shape of the batch
         └► partial_batches.run_execution      full steps in that StepLoop, a remainder in a program of its own
            └► ipu_tf._loops.StepLoop.run      one execution on the device; commits the state, then reads the outputs
         └► OutputsForKeras              reduces the logs of replicas, joins predictions
      └► IPUTrainer._metrics_from_host   after an epoch: variables are written back, logs are read from the metrics

An error of the device is made TensorFlow's by `StepLoop` and returned with the state of the last whole step
(`StepLoopResult.error`); `StepFunction._finish` raises it. Step, execution, Keras execution, chunk and remainder: see
docs/glossary.md.

    common/       trainer.IPUTrainer     step_function.StepFunction                  written once, for both back ends
    tensorflow/   TensorFlowTrainer      TensorFlowStepFunction, state in variables
    jax/          JaxTrainer             JaxStepFunction, state passed in and out

Below them is one `ipu_tf._loops.step_loop.StepLoop` with a `TensorFlowStep` or `JaxStep`. What does not depend on a
back end belongs into `common/`. Start with `common/trainer.py`, then `common/step_function.py`.
"""
