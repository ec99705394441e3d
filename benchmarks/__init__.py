"""Measurements: `python -m benchmarks`. None of them is a test, since none of their figures is the same twice."""
