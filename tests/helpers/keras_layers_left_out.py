"""Keras's layers that the table of training steps leaves out, with the reason for each."""

from collections.abc import Callable

from keras import layers

_BASE = "a base class, or what only names an input"
_HOST = "looks words or numbers up, counts or hashes them on the host before training; nothing of it is trained"
_OTHER = "runs a model of another framework, or a saved one, which is no Keras layer to compile"

LEFT_OUT_LAYERS: dict[str, str] = {
    "InputLayer": _BASE,
    "Layer": _BASE,
    "Lambda": _BASE,
    "Wrapper": _BASE,
    "Pipeline": "a list of other layers",
    "CategoryEncoding": _HOST,
    "Discretization": _HOST,
    "HashedCrossing": _HOST,
    "Hashing": _HOST,
    "IntegerLookup": _HOST,
    "StringLookup": _HOST,
    "TextVectorization": _HOST,
    "FlaxLayer": _OTHER,
    "JaxLayer": _OTHER,
    "TFSMLayer": _OTHER,
    "TorchModuleWrapper": _OTHER,
}

STATELESS_LAYERS: tuple[str, ...] = (
    "Activation",
    "ActivityRegularization",
    "AdaptiveAveragePooling1D",
    "AdaptiveAveragePooling2D",
    "AdaptiveAveragePooling3D",
    "AdaptiveMaxPooling1D",
    "AdaptiveMaxPooling2D",
    "AdaptiveMaxPooling3D",
    "Add",
    "AutoContrast",
    "Average",
    "AveragePooling1D",
    "AveragePooling2D",
    "AveragePooling3D",
    "CenterCrop",
    "Concatenate",
    "ContrastLimitedAdaptiveHistogramEqualization",
    "Cropping1D",
    "Cropping2D",
    "Cropping3D",
    "Dot",
    "ELU",
    "Equalization",
    "Flatten",
    "GlobalAveragePooling1D",
    "GlobalAveragePooling2D",
    "GlobalAveragePooling3D",
    "GlobalMaxPooling1D",
    "GlobalMaxPooling2D",
    "GlobalMaxPooling3D",
    "Identity",
    "LeakyReLU",
    "Masking",
    "MaxNumBoundingBoxes",
    "MaxPooling1D",
    "MaxPooling2D",
    "MaxPooling3D",
    "Maximum",
    "MelSpectrogram",
    "Minimum",
    "Multiply",
    "Permute",
    "ReLU",
    "RepeatVector",
    "Rescaling",
    "Reshape",
    "Resizing",
    "Softmax",
    "Subtract",
    "UnitNormalization",
    "UpSampling1D",
    "UpSampling2D",
    "UpSampling3D",
    "ZeroPadding1D",
    "ZeroPadding2D",
    "ZeroPadding3D",
)
"""Those without weights and without random numbers; that this is so is tested."""

WARPING_LAYERS: dict[str, Callable[[], layers.Layer]] = {
    "RandomPerspective": lambda: layers.RandomPerspective(seed=1),
    "RandomRotation": lambda: layers.RandomRotation(0.3, seed=1),
    "RandomShear": lambda: layers.RandomShear(0.3, 0.3, seed=1),
    "RandomTranslation": lambda: layers.RandomTranslation(0.3, 0.3, seed=1),
    "RandomZoom": lambda: layers.RandomZoom(0.3, seed=1),
}
"""Augmentations that XLA cannot compile and the device can, by `ipu_tf/_ops/image_transform.py`."""

DRAWING_LAYERS: dict[str, Callable[[], layers.Layer]] = {
    "AugMix": lambda: layers.AugMix(seed=1),
    "CutMix": lambda: layers.CutMix(seed=1),
    "MixUp": lambda: layers.MixUp(seed=1),
    "RandAugment": lambda: layers.RandAugment(seed=1),
    "RandomCrop": lambda: layers.RandomCrop(6, 6, seed=1),
    "RandomElasticTransform": lambda: layers.RandomElasticTransform(scale=(0.9, 1.0), seed=1),
}
"""Augmentations that draw gamma distributions or sizes, which XLA cannot compile and the device can."""
