"""The emulated IPU. Uses JAX and numpy only: nothing here imports TensorFlow."""
