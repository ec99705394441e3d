"""Implementation of `IPUEstimator` and `IPUPipelineEstimator`."""
