"""A `MonitoredTrainingSession` that is abandoned goes on from its last checkpoint, with the same losses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

tf1 = tf.compat.v1
DATA = np.random.default_rng(0).normal(size=(12, 4, 3)).astype(np.float32)


class KilledError(Exception):
    """In place of a kill: no hook is told the session's end, so nothing is saved then."""


def losses(folder: Path, killed_after: int | None = None) -> dict[int, float]:
    """Trains up to step 12, with a checkpoint each 5 steps; returns the loss of each step."""

    def step(x: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
        with tf1.variable_scope("", use_resource=True):
            w = tf1.get_variable("w", initializer=tf.ones([3, 1]))
        loss = tf.reduce_mean((x @ w - 2.0) ** 2)
        return loss, tf1.train.MomentumOptimizer(0.05, 0.9).minimize(loss)

    found: dict[int, float] = {}
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [4, 3])
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            (loss,) = ipu.ipu_compiler.compile(step, [x])
        count = tf1.train.get_or_create_global_step()
        following = count.assign_add(1)
        every = {"save_checkpoint_steps": 5, "save_summaries_steps": None, "save_summaries_secs": None}
        with tf1.train.MonitoredTrainingSession(checkpoint_dir=str(folder), **every) as session:
            done = int(session.run_step_fn(lambda step_context: step_context.session.run(count)))
            while done < len(DATA):
                if done == killed_after:
                    raise KilledError
                found[done] = float(session.run(loss, {x: DATA[done]}))
                done = int(session.run(following))
    return found


@pytest.mark.usefixtures("strategy")
def test_a_session_that_is_abandoned_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    wanted = losses(tmp_path / "whole")
    with pytest.raises(KilledError):
        losses(tmp_path / "killed", 8)
    resumed = losses(tmp_path / "killed")
    assert min(resumed) == 5
    assert resumed == {step: loss for step, loss in wanted.items() if step >= 5}
