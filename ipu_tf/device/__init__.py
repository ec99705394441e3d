"""Runtime of the emulated IPU: runs programs, with their feeds, memory and numerics. Uses JAX and NumPy, no TensorFlow.

    Program (program/) ──► Executable (run/) ──► results
                             │  feeds/: batches in, outputs out      memory/: variables, seeds, hidden state
                             │  cache/: compiled programs on disk    files/: programs as files

`convolution/` and `numerics/` compute what XLA computes slowly, or otherwise than an IPU; `schedule/` has timetables of
pipelines.
Enters: programs that `ipu_tf.lowering` made. Leaves: arrays, and the errors of `errors`. Start with `run.executable`.
"""
