"""Stand-in for `tensorflow_addons.metrics`: the F1 score, whose first argument was the number of classes."""

from __future__ import annotations

from typing import Any

import keras

__all__ = ["F1Score"]


@keras.saving.register_keras_serializable(package="Addons")
class F1Score(keras.metrics.F1Score):
    """Harmonic mean of precision and recall.

    Args:
        num_classes: size of the last dimension of labels and predictions, which Keras 3 takes from them.
        average: None for each class, or "micro", "macro", "weighted".
        threshold: above which a prediction counts; by default that of the largest one.
        name: of the metric.
        dtype: of the result.

    Example:
        >>> metric = F1Score(num_classes=2, average="macro")
        >>> metric.update_state([[1, 0], [0, 1]], [[0.9, 0.1], [0.3, 0.7]])
        >>> round(float(metric.result()), 3)
        1.0
    """

    def __init__(
        self,
        num_classes: int | None = None,
        average: str | None = None,
        threshold: float | None = None,
        name: str = "f1_score",
        dtype: Any = None,
    ) -> None:
        super().__init__(average=average, threshold=threshold, name=name, dtype=dtype)
        self.num_classes = num_classes

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {**super().get_config(), "num_classes": self.num_classes}
