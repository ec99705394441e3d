"""Implementation of `IPUEstimator` and `IPUPipelineEstimator`.

Enters: a user's `model_fn` and `input_fn`. Leaves: trained checkpoints, metrics, predictions.
Start with `base`: one program a mode, run step by step; `loops` and `pipeline_loops` build the programs.
"""
