"""Makes device programs of traced functions, and ops of a TensorFlow graph that run them.

    traced function --build / step_program--> Program --device_function (eager) | embed (graphs)--> results

Start with `build`.
"""
