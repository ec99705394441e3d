"""Modules of Keras 2 that Keras 3 does not have, as far as programs and tests for Graphcore's Keras import them."""

from keras_ipu.legacy.keras_2 import install_keras_2
from keras_ipu.scope.input_shapes import install_input_shapes

install_input_shapes()
install_keras_2()
