"""Compiled programs as files of an open format, and the engine that serves one.

Enters: a `Program`. Leaves: a file that JAX alone can load and run.
"""
