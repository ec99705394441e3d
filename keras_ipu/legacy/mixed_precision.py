"""Compatibility module for `keras.mixed_precision.policy`: Keras's dtype policies."""

from keras.mixed_precision import Policy, dtype_policy, global_policy, set_dtype_policy, set_global_policy

__all__ = ["Policy", "dtype_policy", "global_policy", "set_dtype_policy", "set_global_policy", "set_policy"]

set_policy = set_global_policy
