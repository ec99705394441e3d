"""Executable cache: compiled XLA executables on disk, loaded by later processes.

Enters: a function to compile, with its shapes. Leaves: the compiled function, loaded or newly compiled and stored.
Start with `executable_cache`, the cache that users ask for; `user_cache` is the default one.
"""
