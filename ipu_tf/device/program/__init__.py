"""Device programs as frozen data: parts, pipeline stages, replicas. What the device runs, whoever made it.

    Program = parts in order: StraightLinePart | LoopPart (streams feeds; may be a pipeline of stages)

Enters: from `lowering`, functions of JAX arrays with their shapes; `ipu_tf.lowering.programs` makes programs of traced
TensorFlow functions. Leaves: to `device.run`, which runs them. Start with `program`.
"""
