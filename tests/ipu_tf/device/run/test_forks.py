"""Forked processes are refused, since they have none of the device's threads."""

from __future__ import annotations

import subprocess
import sys

import pytest

PARENT = """
import faulthandler, os
import numpy as np, tensorflow as tf, keras
import ipu_tf as ipu

def configure():
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()

def made():
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    return model

x, y = np.ones((64, 8), np.float32), np.ones((64, 1), np.float32)
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8, drop_remainder=True)
doubled = tf.function(lambda: tf.ones((4,)) * 2)
"""
FORK = """
child = os.fork()
if not child:
    faulthandler.dump_traceback_later(60, exit=True)
    try:
        {work}
        print("worked", flush=True)
    except BaseException as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""
USED = {
    "configured": "",
    "a model": "model = made()",
    "trained": "model = made(); model.fit(x, y, verbose=0)",
    "JAX alone": "import jax; jax.devices()",
    "a session": """
with tf.Graph().as_default():
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        result = tf.ones((2, 2)) @ tf.ones((2, 2))
    session = tf.compat.v1.Session()
    session.run(result)
""",
}
WORK = {
    "fit": "(model if 'model' in globals() else made()).fit(x, y, verbose=0)",
    "fit of a dataset": "(model if 'model' in globals() else made()).fit(data, shuffle=False, verbose=0)",
    "predict_on_batch": "(model if 'model' in globals() else made()).predict_on_batch(x)",
    "run": "ipu.ipu_strategy.IPUStrategy().run(doubled)",
    "configure": "configure()",
    "Session.run": "session.run(result)",
}
CASES = [
    pytest.param("configured", "fit", marks=pytest.mark.slow),
    ("a model", "fit"),
    ("trained", "fit"),
    pytest.param("trained", "fit of a dataset", marks=pytest.mark.slow),
    pytest.param("trained", "predict_on_batch", marks=pytest.mark.slow),
    ("trained", "run"),
    ("JAX alone", "configure"),
    ("a session", "Session.run"),
]


def ran(program: str) -> str:
    """Output of a program in a process of its own."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


WAITING = """
import os, signal, time
from ipu_tf.device.run.interrupts import InterruptibleWait

signal.signal(signal.SIGINT, signal.default_int_handler)
with InterruptibleWait() as wait:
    child = os.fork()
    if not child:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            os._exit(3)
        os._exit(4)
    time.sleep(0.5)
    os.kill(child, signal.SIGINT)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), wait.requested)
"""


def test_ctrl_c_in_a_forked_process_interrupts_that_process_alone() -> None:
    assert ran(WAITING) == "3 False\n"


@pytest.mark.parametrize(("used", "work"), CASES)
def test_a_forked_process_is_refused(used: str, work: str) -> None:
    configured = "" if used == "JAX alone" else "configure()\n"
    printed = ran(PARENT + configured + USED[used] + FORK.format(work=WORK[work]))
    assert "ForkedProcess" in printed, printed
    assert 'get_context("spawn")' in printed
    assert printed.endswith("\n0\n")


def test_a_process_that_was_forked_before_jax_started_works() -> None:
    printed = ran(PARENT + FORK.format(work="configure(); made().fit(x, y, verbose=0)"))
    assert printed == "worked\n0\n", printed
