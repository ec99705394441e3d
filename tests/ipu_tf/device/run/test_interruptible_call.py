"""Ctrl-C at any place of a call ends it with `KeyboardInterrupt`, also where Python would lose it."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from ipu_tf.device.run.interruptible_call import InterruptibleCall
from ipu_tf.device.run.interrupts import Interrupts, called_back, check_interrupts, interrupt_at_once, interruptible
from tests.helpers.sigint import press_ctrl_c, sigint_interrupts  # noqa: F401 - a fixture
from tests.helpers.some_ipus import ipus

pytestmark = pytest.mark.usefixtures("sigint_interrupts")


def compute_for_ever() -> None:
    while True:
        time.sleep(0.01)


def _collect_what_others_left() -> None:
    """Collects the garbage of earlier tests, whose finalizers may raise: that says nothing about this one."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda ignored: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook


def in_garbage_collection(seconds: float = 0.01) -> None:
    """In a callback, as JAX and Hypothesis have; Python ignores its exceptions, which are errors in tests."""
    _collect_what_others_left()
    pressed: list[str] = []

    def callback(phase: str, info: Any) -> None:
        if not pressed:
            pressed.append(phase)
            press_ctrl_c()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(0.001)

    gc.callbacks.append(callback)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(callback)


def in_garbage_collection_that_takes_long() -> None:
    """Longer than it takes until Ctrl-C is raised in the middle of other functions."""
    in_garbage_collection(1.1)


def in_a_finalizer() -> None:
    class Pressing:
        def __del__(self) -> None:
            press_ctrl_c()

    Pressing()


def pressing_long() -> None:
    """Longer than it takes until Ctrl-C is raised in the middle of other functions, with many chances to be."""
    press_ctrl_c()
    end = time.monotonic() + 1.1
    while time.monotonic() < end:
        time.sleep(0.001)


def in_a_weak_references_callback_in_garbage_collection() -> None:
    """Python ignores its exceptions, too; its function is the program's own."""
    _collect_what_others_left()

    class Ring:
        pass

    ring = Ring()
    ring.itself = ring  # type: ignore[attr-defined]
    reference = weakref.ref(ring, lambda ended: pressing_long())
    del ring
    gc.collect()
    assert reference() is None


def in_a_weak_references_finalizer() -> None:
    """Where the last reference ends, without the collector."""

    class Ending:
        pass

    ending = Ending()
    weakref.finalize(ending, pressing_long)
    del ending


def swallowed() -> None:
    try:
        press_ctrl_c()
        compute_for_ever()
    except KeyboardInterrupt:
        pass


PRESSING = [
    press_ctrl_c,
    in_garbage_collection,
    in_garbage_collection_that_takes_long,
    in_a_weak_references_callback_in_garbage_collection,
    in_a_weak_references_finalizer,
    in_a_finalizer,
    swallowed,
]


@pytest.mark.parametrize("pressed", PRESSING)
def test_it_is_not_lost(pressed: Callable[[], None]) -> None:
    with pytest.raises(KeyboardInterrupt), InterruptibleCall():
        pressed()
        compute_for_ever()


def test_it_is_not_lost_at_the_end() -> None:
    with pytest.raises(KeyboardInterrupt), InterruptibleCall():
        in_garbage_collection()


def test_the_garbage_collector_is_left_as_it_was() -> None:
    before = list(gc.callbacks)
    with InterruptibleCall(), InterruptibleCall():
        assert len(gc.callbacks) == len(before) + 1
    assert gc.callbacks == before


def test_what_became_of_it_in_other_libraries_is_its_cause() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, InterruptibleCall():
        press_ctrl_c()
        raise SystemError("returned a result with an exception set")
    assert isinstance(caught.value.__cause__, SystemError)


def test_other_exceptions_stay() -> None:
    with pytest.raises(SystemError), InterruptibleCall():
        raise SystemError


def test_an_execution_is_finished_first() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), InterruptibleCall():
        with InterruptibleCall(), Interrupts() as execution:
            press_ctrl_c()
            check_interrupts()
            time.sleep(1.5)  # longer than it waits anywhere else
            done.append(execution.requested)
        check_interrupts()
        done.append(False)
    assert done == [True]


def test_what_changes_nothing_is_left_in_an_execution() -> None:
    with pytest.raises(KeyboardInterrupt), InterruptibleCall(), Interrupts():
        press_ctrl_c()
        with interrupt_at_once():
            compute_for_ever()


def test_twice_ends_an_execution_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), InterruptibleCall(), Interrupts():
        press_ctrl_c()
        press_ctrl_c()
        compute_for_ever()


def test_a_program_is_not_left_in_the_middle_of_its_lowering() -> None:
    """Ctrl-C while TensorFlow traces ends the call before the device runs, and the next call works."""
    traced: list[Any] = []

    @tf.function
    def doubled(x: Any) -> Any:
        if not traced:
            traced.append(x)
            press_ctrl_c()
        return 2 * x

    with ipus(1) as strategy:
        with pytest.raises(KeyboardInterrupt):
            strategy.run(doubled, [tf.ones(())])
        assert float(strategy.run(doubled, [tf.ones(())])) == 2.0


@pytest.mark.parametrize("called", [True, False])
def test_what_the_main_thread_waits_for_sees_it(called: bool) -> None:
    """Of other threads, that alone which C++ calls back; who asked for signals before is told of them too."""
    reader, writer = os.pipe2(os.O_NONBLOCK)
    seen: list[bool] = []

    def in_thread() -> None:
        with called_back() if called else contextlib.nullcontext(), Interrupts() as interrupts:
            seen.append(interrupts.requested)
            press_ctrl_c()
            end = time.monotonic() + (5 if called else 0.2)
            while not interrupts.requested and time.monotonic() < end:
                time.sleep(0.01)
            seen.append(interrupts.requested)

    def wait() -> None:
        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join()

    former = signal.set_wakeup_fd(writer)
    try:
        with pytest.raises(KeyboardInterrupt):
            interruptible(wait)
    finally:
        assert signal.set_wakeup_fd(former) == writer
    assert seen == [False, called]
    assert os.read(reader, 9) == bytes([signal.SIGINT])
    os.close(reader)
    os.close(writer)


def test_a_handler_of_the_programs_own_is_left_alone() -> None:
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        interruptible(press_ctrl_c)
    finally:
        signal.signal(signal.SIGINT, before)
    assert pressed == [signal.SIGINT]
