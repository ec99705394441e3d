"""What `ipu_tf.test_utils` gives to tests of IPU programs: assertions, data sets, reports, hardware requirements."""
