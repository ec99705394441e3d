"""Implementation of `ipu_tf.test_utils`: assertions, data sets, reports, hardware requirements.

Enters: a test's program, and what the device did in it. Leaves: assertions about compilations and transfers.
Start with `reports`.
"""
