"""Makes SUPPORTED.md: Graphcore's public names, looked up one by one in this project.

Start with `entry`: what has become of one name.
"""
