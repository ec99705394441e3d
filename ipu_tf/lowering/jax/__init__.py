"""Steps written in JAX (Keras on JAX) as device programs, and JAX's private API in one file (`jax_private`).

Enters: a function `step(state, batch)`. Leaves: a `Program` that runs it in a loop. Start with `jax_step`.
"""
