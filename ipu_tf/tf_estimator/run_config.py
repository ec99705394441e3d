"""`RunConfig`: model folder, checkpoint and summary intervals, and session options of an estimator."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from ipu_tf._config.ignored_arguments import record_ignored

_SAVE_SECONDS = 600
_DEFAULT = object()
_WITHOUT_EFFECT = ("device_fn", "protocol", "experimental_max_worker_delay_secs")


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Run configuration of an estimator. There is one process, the chief.

    Attributes:
        model_dir: the folder of checkpoints and summaries; by default a temporary one.
        tf_random_seed: the seed of each graph.
        save_summary_steps: steps between two summaries.
        save_checkpoints_steps: steps between two checkpoints; None for none by steps.
        save_checkpoints_secs: seconds between two checkpoints, 600 unless `save_checkpoints_steps` is given; None for
            none by time. With neither there are no checkpoints.
        session_config: a `tf.compat.v1.ConfigProto`.
        keep_checkpoint_max: how many checkpoints are kept; 0 or None for all.
        keep_checkpoint_every_n_hours: keeps one more checkpoint for every so many hours.
        log_step_count_steps: steps between two lines of the log on loss and speed; None for no such lines.
        train_distribute: a strategy of several workers is refused when training starts.
        device_fn: without effect.
        protocol: without effect.
        eval_distribute: a strategy of several workers is refused when evaluation starts.
        experimental_distribute: a `DistributeConfig`, which gives the two above.
        experimental_max_worker_delay_secs: without effect.
        session_creation_timeout_secs: seconds to wait for a session.
        checkpoint_save_graph_def: whether the graph is saved with each checkpoint.

    Raises:
        ValueError: if both `save_checkpoints_steps` and `save_checkpoints_secs` are given.

    Example:
        >>> RunConfig(save_checkpoints_steps=10).replace(model_dir="/tmp/model").save_checkpoints_secs is None
        True
    """

    model_dir: str | None = None
    tf_random_seed: int | None = None
    save_summary_steps: int = 100
    save_checkpoints_steps: Any = _DEFAULT
    save_checkpoints_secs: Any = _DEFAULT
    session_config: Any = None
    keep_checkpoint_max: int | None = 5
    keep_checkpoint_every_n_hours: float = 10000
    log_step_count_steps: int | None = 100
    train_distribute: Any = None
    device_fn: Any = None
    protocol: str | None = None
    eval_distribute: Any = None
    experimental_distribute: Any = None
    experimental_max_worker_delay_secs: float | None = None
    session_creation_timeout_secs: int = 7200
    checkpoint_save_graph_def: bool = True

    def __post_init__(self) -> None:
        steps, seconds = self.save_checkpoints_steps, self.save_checkpoints_secs
        if _given(steps) and _given(seconds):
            raise ValueError("`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set.")
        if seconds is _DEFAULT:
            self._set("save_checkpoints_secs", _SAVE_SECONDS if steps is _DEFAULT else None)
        if steps is _DEFAULT:
            self._set("save_checkpoints_steps", None)
        for part in ("train_distribute", "eval_distribute"):
            if getattr(self, part) is None:
                self._set(part, getattr(self.experimental_distribute, part, None))
        for name in _WITHOUT_EFFECT:
            record_ignored(f"RunConfig.{name}", getattr(self, name), "the estimator runs in one process on one host")

    def replace(self, **changes: Any) -> Any:
        """A copy with other values for some attributes. Of steps and seconds between checkpoints one ends the other.

        Raises:
            TypeError: for a name that is no attribute.
        """
        pair = ("save_checkpoints_steps", "save_checkpoints_secs")
        for name, other in (pair, pair[::-1]):
            if changes.get(name) is not None:
                changes.setdefault(other, None)
        return dataclasses.replace(self, **changes)

    def session_options(self) -> tf.compat.v1.ConfigProto:
        """Returns the configuration of sessions."""
        return self.session_config or tf.compat.v1.ConfigProto(allow_soft_placement=True)

    @property
    def is_chief(self) -> bool:
        """Returns whether this process saves: yes."""
        return True

    @property
    def master(self) -> str:
        """The address of the session's server: this process."""
        return ""

    @property
    def evaluation_master(self) -> str:
        """The address of the server of an evaluation's session: this process."""
        return ""

    @property
    def task_type(self) -> str:
        """Type of this process: a worker."""
        return "worker"

    @property
    def task_id(self) -> int:
        """The number of this process among its like."""
        return 0

    @property
    def num_worker_replicas(self) -> int:
        """Returns how many processes train: one."""
        return 1

    @property
    def num_ps_replicas(self) -> int:
        """Returns how many processes hold variables for others: none."""
        return 0

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def _given(value: Any) -> bool:
    return value is not _DEFAULT and value is not None
