"""Lowers JAX training steps (Keras on JAX) to device programs; private API of JAX in `jax_private`.

Enters: a function `step(state, batch)`. Leaves: a `Program` that runs it in a loop. Start with `jax_step`.
"""
