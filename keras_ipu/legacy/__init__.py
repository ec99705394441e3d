"""Keras 3 with Keras 2's module names, arguments, attributes and files, for programs that were written for Keras 2.

Enters: under the launcher, and after `install_aliases()`, every program that imports Keras.
Leaves: Keras 3 with Keras 2's names and behaviour once `install()` is called; importing a module changes nothing.
Start with `keras_2`.
"""

import keras

from keras_ipu.legacy.checkpoint_callback import install_checkpoint_callback
from keras_ipu.legacy.core_layers import install_layers_of_ops
from keras_ipu.legacy.graph_dtypes import install_graph_dtypes
from keras_ipu.legacy.keras_2 import install_keras_2
from keras_ipu.legacy.layer_arguments import install_arguments
from keras_ipu.legacy.layer_names import install_layer_names
from keras_ipu.legacy.loss_scaling import install_loss_scaling
from keras_ipu.legacy.one_target import install_one_target
from keras_ipu.legacy.optimizer_subclasses import install_subclasses
from keras_ipu.legacy.optimizers import install_optimizers
from keras_ipu.legacy.removed_layers import install_removed_layers
from keras_ipu.legacy.resnet import install_resnet
from keras_ipu.legacy.watched_variables import install_watched_variables
from keras_ipu.legacy.weight_files import install_weight_files
from keras_ipu.scope.input_shapes import install_input_shapes


def install() -> None:
    """Installs the patches for programs that were written for Keras 2. Calling it again changes nothing."""
    install_input_shapes()
    install_keras_2()
    install_arguments()
    install_layer_names()
    install_one_target()
    install_checkpoint_callback()
    install_optimizers()
    install_subclasses()
    install_loss_scaling()
    install_removed_layers()
    install_resnet()
    if keras.config.backend() == "tensorflow":
        install_graph_dtypes()
        install_weight_files()
        install_layers_of_ops()
        install_watched_variables()
