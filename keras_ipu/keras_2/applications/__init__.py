"""`tensorflow.python.keras.applications` for Keras 2: `resnet` of this folder, else what `tf_keras` has.

Enters: its name, where `TF_USE_LEGACY_KERAS` is set. Leaves: modules of networks.
"""

from __future__ import annotations

import importlib
from typing import Any

from keras_ipu.keras_2.applications import resnet as resnet

_OF_KERAS = "tf_keras.src.applications"


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_OF_KERAS), name)
