"""`tf.estimator.train_and_evaluate`: trains, with evaluations in between."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf.emulation import EmulationError

tf1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class TrainSpec:
    """Training arguments of `train_and_evaluate`.

    Attributes:
        input_fn: the input function of the training.
        max_steps: the global step to train up to; None until the data ends.
        hooks: `SessionRunHook`s.
        saving_listeners: `CheckpointSaverListener`s.

    Raises:
        ValueError: if `max_steps` is not positive.
    """

    input_fn: Callable[..., Any]
    max_steps: int | None = None
    hooks: Sequence[Any] | None = None
    saving_listeners: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        _check_positive(self.max_steps, "max_steps")


@dataclasses.dataclass(frozen=True)
class EvalSpec:
    """Evaluation arguments of `train_and_evaluate`.

    Attributes:
        input_fn: the input function of the evaluation.
        steps: how many steps an evaluation takes; None until the data ends.
        name: tells evaluations of different data apart.
        hooks: `SessionRunHook`s.
        exporters: have to be empty: exporters went with TensorFlow's estimators.
        start_delay_secs: without effect, as in TensorFlow's local runs.
        throttle_secs: at least so many seconds lie between two evaluations during the training.

    Raises:
        EmulationError: if there are exporters.
        ValueError: if `steps` is not positive.
    """

    input_fn: Callable[..., Any]
    steps: int | None = 100
    name: str | None = None
    hooks: Sequence[Any] | None = None
    exporters: Any = None
    start_delay_secs: float = 120
    throttle_secs: float = 600

    def __post_init__(self) -> None:
        _check_positive(self.steps, "steps")
        if self.exporters:
            raise EmulationError(
                "tf.estimator.EvalSpec: exporters went with TensorFlow's estimators. Evaluate without them, and "
                "call the estimator's export functions after the training."
            )


class _EvaluateAtCheckpoint(tf1.train.CheckpointSaverListener):  # type: ignore[name-defined]
    """Evaluates when a checkpoint has been written, unless that was done a short while ago; and at the training's end.

    The checkpoint that a training begins with is not evaluated, as in TensorFlow's local runs.

    Attributes:
        results: the metrics of the last evaluation; None before there was one.
    """

    def __init__(self, evaluate: Callable[[], dict[str, Any]], throttle_secs: float) -> None:
        self._evaluate = evaluate
        self._throttle = throttle_secs
        self._begun, self._last = False, -math.inf
        self._step: int | None = None
        self.results: dict[str, Any] | None = None

    def after_save(self, session: Any, global_step_value: int) -> None:
        begun, self._begun = self._begun, True
        if begun and time.monotonic() - self._last >= self._throttle:
            self._last = time.monotonic()
            self._evaluate_at(global_step_value)

    def end(self, session: Any, global_step_value: int) -> None:
        if global_step_value != self._step:
            self._evaluate_at(global_step_value)

    def _evaluate_at(self, step: int) -> None:
        self._step, self.results = step, self._evaluate()


def train_and_evaluate(estimator: Any, train_spec: TrainSpec, eval_spec: EvalSpec) -> tuple[dict[str, Any], list[Any]]:
    """Trains, and evaluates when checkpoints are written, at most every `throttle_secs`, and the last one.

    Args:
        estimator: an `Estimator`, `IPUEstimator` or `IPUPipelineEstimator`.
        train_spec: the training.
        eval_spec: the evaluations.

    Returns:
        The metrics of the last evaluation, and an empty list, for there are no exporters.
    """

    def evaluate() -> dict[str, Any]:
        results: dict[str, Any] = estimator.evaluate(
            eval_spec.input_fn, steps=eval_spec.steps, hooks=eval_spec.hooks, name=eval_spec.name
        )
        return results

    listener = _EvaluateAtCheckpoint(evaluate, eval_spec.throttle_secs)
    estimator.train(
        train_spec.input_fn,
        hooks=train_spec.hooks,
        max_steps=train_spec.max_steps,
        saving_listeners=[*(train_spec.saving_listeners or ()), listener],
    )
    return evaluate() if listener.results is None else listener.results, []


def _check_positive(value: int | None, name: str) -> None:
    if value is not None and value <= 0:
        raise ValueError(f"Must specify {name} > 0, given: {value}")
