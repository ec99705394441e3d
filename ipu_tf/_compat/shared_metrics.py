"""One object of a metric for several outputs, as TensorFlow 2.6 took it, for programs for Keras 2.

Each output then updates it, and it shows the mean of all. Later releases refuse it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from ipu_tf._patches.import_hooks import after_import
from ipu_tf._patches.installation import replace_in
from ipu_tf.device import environment


def allow_shared_metrics() -> None:
    """Has `compile` of Keras 2 take a metric for several outputs, as in TensorFlow 2.6. Imports nothing."""
    after_import("tf_keras.src.engine.compile_utils", _patch_check)


def _patch_check(compile_utils: ModuleType) -> None:
    if environment.legacy_keras():
        replace_in(compile_utils.MetricsContainer, "_check_duplicated_metrics", _unchecked, by=__name__)


def _unchecked(stock: Callable[..., None]) -> Callable[..., None]:
    def taken(self: Any, metrics: Any, weighted_metrics: Any) -> None: ...

    return taken
