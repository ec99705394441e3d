"""Stand-ins for the Python modules of Graphcore's TensorFlow plugin: the part that public programs import."""
