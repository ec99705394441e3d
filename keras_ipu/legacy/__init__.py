"""Modules of Keras 2 that Keras 3 does not have, as far as programs and tests for Graphcore's Keras import them."""

from keras_ipu.input_shapes import install_input_shapes
from keras_ipu.legacy.keras_2 import install_keras_2

install_input_shapes()
install_keras_2()
