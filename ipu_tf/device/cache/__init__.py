"""The executable cache: compiled code on disk, for the next processes.

Enters: a function to compile, with its shapes. Leaves: the compiled function, loaded or made and kept.
"""
