"""Generates SUPPORTED.md: looks up each of Graphcore's public names in this project.

Start with `entry`: examines one name.
"""
