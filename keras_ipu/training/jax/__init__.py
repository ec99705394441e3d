"""fit, evaluate and predict with Keras's JAX back end: a traced `train_step` in a device loop."""
