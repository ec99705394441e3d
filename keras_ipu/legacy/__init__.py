"""Compatibility modules for Keras 2's module names that Keras 3 does not have."""

from keras_ipu.legacy.keras_2 import install_keras_2
from keras_ipu.scope.input_shapes import install_input_shapes

install_input_shapes()
install_keras_2()
