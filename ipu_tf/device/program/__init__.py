"""Device programs as frozen data: parts, pipeline stages, replicas.

    Program = parts in order: StraightLinePart | LoopPart (streams feeds; may be a pipeline of stages)

Enters: from `lowering`, functions of JAX arrays with their shapes. Leaves: to `device.run`.
Start with `program`.
"""
