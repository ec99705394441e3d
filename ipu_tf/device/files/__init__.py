"""Executable files: compiled programs serialized for JAX, and the engine that serves one.

Enters: a `Program`. Leaves: a file that JAX alone can load and run.
Start with `executable_file`.
"""
