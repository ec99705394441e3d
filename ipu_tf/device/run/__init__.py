"""Runs programs: compiles each part once, streams loops chunk by chunk, dispatches pipeline stages.

    Executable --ExecutionContext, part by part--> straight function | LoopRun | PipelineRun (several JAX devices)

Enters: a `Program` and its parameters. Leaves: results, the number of steps, and the error that ended it early.
Start with `executable`, then `loop_run` and `pipeline_run`.
"""
