"""IPU arithmetic: float16 overflow, stochastic rounding, random bits, floating-point exceptions, assertions.

Enters and leaves: JAX arrays, while a program is traced. `ipu_tf.lowering.importer.half_precision` applies it to ops.
Start with `half`.
"""
