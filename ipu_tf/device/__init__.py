"""Runtime of the emulated IPU: programs, feeds, memory, numerics. Uses JAX and NumPy; imports no TensorFlow."""
