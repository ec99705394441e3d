"""Modules that only programs of Keras 2 import."""

from __future__ import annotations

import importlib.util


def lacks_keras_2(module: str) -> bool:
    """Whether a module cannot be imported here: Keras 2 is the package tf_keras, and its front end derives from it."""
    return module.startswith("keras_ipu.keras_2.") and importlib.util.find_spec("tf_keras") is None
