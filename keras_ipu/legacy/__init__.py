"""Modules of Keras 2 that Keras 3 does not have, as far as programs and tests for Graphcore's Keras import them."""
