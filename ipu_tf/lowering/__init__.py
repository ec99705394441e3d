"""Lowers TensorFlow functions (via StableHLO) and JAX steps to device programs.

    TensorFlow function ─tensorflow/─► StableHLO module ─stablehlo/: analysed─► programs/ ─importer/: rules─► Program
    JAX step            ─jax/─────────────────────────────────────────────────────────────────────────────► Program

Pipelines are cut into stages by `stages/`. Enters: traced functions. Leaves: `ipu_tf.device.program.Program`s.
Start with `tensorflow.trace`, then `programs.build`.
"""

import tensorflow  # noqa: F401 - first: its import patches sessions, by modules of this folder that must be whole then
