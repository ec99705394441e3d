"""The parts of `ipu_tf.ipu_estimator` and `ipu_tf.ipu_pipeline_estimator`."""
