"""fit, evaluate and predict with Keras's TensorFlow back end: a traced `train_step` in a device loop."""
