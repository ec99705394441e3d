"""Implementation of `ipu_tf.test_utils`: assertions, data sets, reports, hardware requirements."""
