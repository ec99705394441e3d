"""Generates SUPPORTED.md: looks up each of Graphcore's public names in this project.

Start with `entry`: examines one name.
Enters: the list of Graphcore's names. Leaves: for each, whether it works, has no effect, or is refused, and why.
"""
