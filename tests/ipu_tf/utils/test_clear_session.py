"""`emulation.clear_session`: the process afterwards is as one that has just imported `ipu_tf`."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._state.registry import ProcessValue, registered_states
from ipu_tf.device.errors import UnknownQueue
from ipu_tf.device.feeds import queues
from ipu_tf.device.memory.residency import RESIDENCY
from ipu_tf.emulation import clear_session, device_counts, ignored_arguments, record_ignored


def run_one() -> tuple[tf.Variable, str]:
    """Runs a loop with an infeed and a variable; returns the variable, and the name of the infeed."""
    ipu.config.IPUConfig().configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        variable = tf.Variable(np.float32(1))
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(np.float32(2)).repeat())

        def body(x: tf.Tensor) -> None:
            variable.assign_add(x)

        strategy.run(tf.function(lambda: ipu.loops.repeat(3, body, [], infeed) and None))
        return variable, infeed._id


def test_nothing_is_left_but_values_of_variables() -> None:
    variable, name = run_one()
    record_ignored("somewhere.something", 1)
    assert ipu.config.get_ipu_config() and device_counts().executions > 0
    assert ignored_arguments() and queues.infeed(name)
    clear_session()
    assert variable.numpy() == 7
    assert (device_counts().executions, ignored_arguments(), len(RESIDENCY)) == (0, (), 0)
    assert ipu.config.ignored_options() == ()
    with pytest.raises(RuntimeError, match="No IPU devices configured"):
        ipu.config.get_ipu_config()
    with pytest.raises(UnknownQueue):
        queues.infeed(name)


def test_every_kind_that_is_cleared_is_empty() -> None:
    run_one()
    clear_session()
    left = {}
    for each in registered_states():
        if not each.kept and hasattr(each.state, "__len__"):
            left[each.kind] = len(each.state)
        elif not each.kept and isinstance(each.state, ProcessValue):
            left[each.kind] = int(each.state.value != each.state._default)
    assert len(left) > 15
    assert left == dict.fromkeys(left, 0)


def test_programs_run_again_with_the_same_numbers() -> None:
    first = run_one()[0].numpy()
    clear_session()
    assert (first, run_one()[0].numpy()) == (7, 7)


def test_messages_are_given_again(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="ipu_tf"):
        for _ in range(2):
            record_ignored("somewhere.something", 1)
        clear_session()
        record_ignored("somewhere.something", 1)
    assert caplog.text.count("somewhere.something=1 has no effect") == 2


def test_it_waits_for_running_programs() -> None:
    clearing = threading.Thread(target=clear_session)
    with queues.program_running():
        clearing.start()
        clearing.join(0.2)
        assert clearing.is_alive()
    clearing.join(10)
    assert not clearing.is_alive()
