"""Pipelines of TensorFlow functions as one looped program, behind `ops.pipelining_ops.pipeline`.

    pipeline(...) --pipeline_arguments: checks--> program: the loop over micro-batches --> markers between stages

Enters: the arguments of `pipeline`. Leaves: ops of a graph, with markers at which `lowering.stages` cuts it.
Start with `pipeline_arguments`, then `program`. Timetables and memory of a pipeline are data in `ipu_tf.pipeline`.
"""
