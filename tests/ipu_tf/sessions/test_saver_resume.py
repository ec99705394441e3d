"""A TensorFlow 1 program with a `Saver` that is killed and started again goes on from its last checkpoint."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.helpers.subprocess_cases import ROOT

#: As programs for Graphcore's TensorFlow are written; it kills itself after the step that it is told.
PROGRAM = """\
import os, signal, sys
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

tf.disable_v2_behavior()
folder, killed_after = sys.argv[1], int(sys.argv[2])
data = np.random.default_rng(0).normal(size=(12, 4, 3)).astype(np.float32)
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()

def step(x):
    with tf.variable_scope("", use_resource=True):
        w = tf.get_variable("w", initializer=tf.ones([3, 1]))
    loss = tf.reduce_mean((x @ w - 2.0) ** 2)
    return loss, tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss)

x = tf.placeholder(tf.float32, [4, 3])
with ipu.scopes.ipu_scope("/device:IPU:0"):
    (loss,) = ipu.ipu_compiler.compile(step, [x])
count = tf.train.get_or_create_global_step()
following = count.assign_add(1)
saver = tf.train.Saver(max_to_keep=2)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    newest = tf.train.latest_checkpoint(folder)
    if newest:
        saver.restore(session, newest)
    done = int(session.run(count))
    while done < len(data):
        print(done, session.run(loss, {x: data[done]}).tobytes().hex(), flush=True)
        done = int(session.run(following))
        if done % 3 == 0:
            saver.save(session, os.path.join(folder, "model"), global_step=count)
        if done == killed_after:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def losses(program: Path, folder: Path, killed_after: int = -1) -> tuple[int, dict[int, str]]:
    """Runs the program; returns how it ended, and the bits of the loss of each step."""
    done = subprocess.run(
        [sys.executable, "-m", "ipu_tf", str(program), str(folder), str(killed_after)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    lines = [line.split() for line in done.stdout.splitlines() if line[:1].isdigit()]
    assert lines, done.stderr
    return done.returncode, {int(step): bits for step, bits in lines}


def test_a_killed_program_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    code, wanted = losses(program, tmp_path / "whole")
    assert (code, sorted(wanted)) == (0, list(range(12)))
    code, first = losses(program, tmp_path / "killed", 7)
    assert (code, sorted(first)) == (-signal.SIGKILL, list(range(7)))
    code, resumed = losses(program, tmp_path / "killed")
    assert code == 0
    assert resumed == {step: bits for step, bits in wanted.items() if step >= 6}
