"""Compatibility modules for Keras 2's module names that Keras 3 does not have.

Enters: a program that imports Keras 2's modules. Leaves: Keras 3 with Keras 2's names and behaviour.
Start with `keras_2`.
"""

from keras_ipu.legacy.keras_2 import install_keras_2
from keras_ipu.scope.input_shapes import install_input_shapes

install_input_shapes()
install_keras_2()
