"""Parses and analyses StableHLO modules: ops, trip counts, partition into parts, hidden state. Traces nothing.

Enters: bytecode from TensorFlow. Leaves: a `Module`, and what is known of it before JAX traces it. Start with `module`;
the meaning of each op is in `ipu_tf.lowering.importer.rules`.
"""
