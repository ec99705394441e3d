"""Refuses ops placed on an IPU without `ipu_compiler.compile`."""

from __future__ import annotations

import tensorflow as tf

from ipu_tf.emulation import EmulationError


def refuse_uncompiled(graph: tf.Graph) -> None:
    """Refuses a graph with operations on an IPU outside of a compiled program.

    Raises:
        EmulationError: if there is one. TensorFlow would place it on the CPU in silence.
    """
    for operation in graph.get_operations():
        if operation.device and tf.DeviceSpec.from_string(operation.device).device_type == "IPU":
            raise EmulationError(
                f"The model_fn placed {operation.name!r} on {operation.device} without compiling it; TensorFlow would "
                "run it on the CPU. Use ipu.ipu_estimator.IPUEstimator, which compiles the model_fn, or "
                "ipu.ipu_compiler.compile inside the model_fn."
            )
