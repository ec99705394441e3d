"""Builds device programs from traced functions, and TensorFlow graph ops that run them.

    traced function --build / step_program--> Program --device_function (eager) | embed (graphs)--> results

Start with `build`.
"""
