"""Imports StableHLO into JAX: walks a module and applies one rule for each op.

Enters: a parsed module and the values of its arguments. Leaves: JAX values, while JAX traces.
Start with `interpreter`; the rules are in `rules/`, one small function for each op.
"""
