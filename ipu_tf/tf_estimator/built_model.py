"""`BuiltModel`: graph tensors of a built `model_fn`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ipu_tf.tf_estimator.model_fn import EstimatorSpec


def _nothing() -> None:
    pass


@dataclasses.dataclass(frozen=True)
class BuiltModel:
    """Graph tensors of a built `model_fn`.

    Attributes:
        spec: tensors and operations of the current graph.
        hooks: what starts the feeds, for the session.
        endless: whether it is an error if the data ends before the steps do.
        leftovers: predictions that are there when the data ended within a run; None if there cannot be any.
        close: called when nothing runs any more.
    """

    spec: EstimatorSpec
    hooks: tuple[Any, ...] = ()
    endless: bool = False
    leftovers: Any = None
    close: Callable[[], None] = _nothing
