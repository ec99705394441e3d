"""Compatibility module for `tf.layers`, which TensorFlow no longer exports since Keras 3.

The layers are TensorFlow's, which still contains them; `batch_normalization`, which it lacks, is `tf1_batch_norm`.
"""

from __future__ import annotations

from typing import Any

#: The functions and classes that `tf.layers` gave.
NAMES = frozenset(
    {
        "AveragePooling1D",
        "AveragePooling2D",
        "AveragePooling3D",
        "Conv1D",
        "Conv2D",
        "Conv2DTranspose",
        "Conv3D",
        "Conv3DTranspose",
        "Dense",
        "Dropout",
        "Flatten",
        "InputSpec",
        "Layer",
        "MaxPooling1D",
        "MaxPooling2D",
        "MaxPooling3D",
        "SeparableConv1D",
        "SeparableConv2D",
        "average_pooling1d",
        "average_pooling2d",
        "average_pooling3d",
        "conv1d",
        "conv2d",
        "conv2d_transpose",
        "conv3d",
        "conv3d_transpose",
        "dense",
        "dropout",
        "flatten",
        "max_pooling1d",
        "max_pooling2d",
        "max_pooling3d",
        "separable_conv1d",
        "separable_conv2d",
    }
)


def __getattr__(name: str) -> Any:
    # TensorFlow gets this module as an attribute while it is being imported itself.
    if name in ("BatchNormalization", "batch_normalization"):
        from ipu_tf._compat import tf1_batch_norm

        return getattr(tf1_batch_norm, name)
    if name not in NAMES:
        raise AttributeError(
            f"tf.layers.{name} is not there. tf.layers has {', '.join(sorted(NAMES))}, BatchNormalization and "
            "batch_normalization."
        )
    from ipu_tf.lowering.tensorflow import tf1_private

    if name in ("Layer", "InputSpec"):
        return getattr(tf1_private, name)
    return next(getattr(module, name) for module in tf1_private.LAYER_MODULES if hasattr(module, name))


def __dir__() -> list[str]:
    return sorted(NAMES | {"BatchNormalization", "batch_normalization"})
