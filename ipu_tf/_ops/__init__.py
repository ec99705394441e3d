"""Implementations behind the public modules of `ipu_tf.ops`: CTC, samplers, group norm, float8, host embeddings.

Enters and leaves: tensors of the graph that TensorFlow traces.
Start with `ctc_ops`; each file is one op or one kind of op.
"""
