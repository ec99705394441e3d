"""Model classes removed after SDK 2.3: raise an error that names the replacement."""

from __future__ import annotations

from typing import Any

_TEXT = "{old} has been deleted. Use {new} within a `tensorflow.python.ipu.ipu_strategy.IPUStrategy` instead."


class _Deleted:
    """Base class of removed model classes: raises when it is constructed."""

    _OLD = _NEW = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(_TEXT.format(old=self._OLD, new=self._NEW))


class Model(_Deleted):
    """Raises a RuntimeError that names `tf.keras.Model`."""

    _OLD, _NEW = "IPUModel", "tf.keras.Model"


class Sequential(_Deleted):
    """Raises a RuntimeError that names `tf.keras.Sequential`."""

    _OLD, _NEW = "IPUSequential", "tf.keras.Sequential"


class PipelineModel(_Deleted):
    """Raises a RuntimeError that names `tf.keras.Model`."""

    _OLD, _NEW = "PipelineModel", "tf.keras.Model"


class PipelineSequential(_Deleted):
    """Raises a RuntimeError that names `tf.keras.Sequential`."""

    _OLD, _NEW = "PipelineSequential", "tf.keras.Sequential"
