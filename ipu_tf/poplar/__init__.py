"""Stand-ins for the Python side of Graphcore's TensorFlow plugin, as far as public programs reach into it."""
