"""From a TensorFlow function through StableHLO to a JAX function the device can run."""
