"""No wait for an instance that is gone is longer than it has to be, at the end of the process either."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from ipu_tf.device.instances import group, signs_of_life
from ipu_tf.device.instances.group import InstanceError, InstanceGroup
from ipu_tf.device.instances.place import Place

Ended = Callable[[], list[str]]


class Store:
    """A store of keys and values in place of instance 0's; without answers while `stuck` is set."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.answers = threading.Event()
        self.answers.set()
        self.waited: list[float] = []
        self.closed = False

    def note(self, key: str, text: Any) -> None:
        self.answers.wait()
        self.values[key] = text

    put = note

    def noted(self, key: str) -> str | None:
        return self.values.get(key)

    def all_noted(self, folder: str) -> dict[int, str]:
        self.answers.wait()
        return {int(key[len(folder) + 1 :]): text for key, text in self.values.items() if key.startswith(f"{folder}/")}

    def get(self, key: str, seconds: float) -> bytes | None:
        time.sleep(0.0 if key in self.values else min(seconds, 0.01))
        return self.values.get(key)

    def delete(self, key: str) -> None:
        self.values.pop(key, None)

    def wait_until_alone(self, seconds: float) -> None:
        self.waited.append(seconds)

    def leave(self) -> None:
        self.answers.wait()
        self.closed = True


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ended:
    """Short times; what was said where the process would have ended."""
    for name, seconds in (("BEAT", 0.02), ("GONE_AFTER", 0.2), ("LEFT_ALONE", 0.3), ("_LOOK", 0.02)):
        monkeypatch.setattr(signs_of_life, name, seconds)
    monkeypatch.setattr(group, "LEFT_ALONE", 0.3)
    done = threading.Event()

    def end(code: int) -> None:
        done.set()
        raise RuntimeError(code)  # of the thread, which ends

    monkeypatch.setattr(signs_of_life.os, "_exit", end)

    def said() -> list[str]:
        assert done.wait(30), "the process goes on"
        return capsys.readouterr().err.splitlines()[:1]

    return said


def test_an_instance_that_is_gone_is_not_waited_for_at_the_end(ended: Ended) -> None:
    store = Store()
    others = InstanceGroup(Place(3, 0), store, 1000.0)  # type: ignore[arg-type]
    store.values |= {"ended/2": "", "alive/1": "5 ", "exchange/values/0/2": b""}
    with pytest.raises(InstanceError, match="waited for instance 1 in 'values': instance 1 is gone: it gave no sign"):
        others.exchange("values", b"")
    assert others.lost
    others.leave()  # at once: it ends before the test's time limit
    assert store.closed and "ended/0" in store.values
    assert store.waited == [1.0]


def test_one_that_did_not_come_is_waited_for_a_little_and_one_that_trains_until_it_ends(ended: Ended) -> None:
    store = Store()
    others = InstanceGroup(Place(2, 0), store, 0.5)  # type: ignore[arg-type]
    stop = threading.Event()

    def live() -> None:
        beat = 0
        while not stop.wait(0.02):
            beat += 1
            store.values["alive/1"] = f"{beat} "

    lives = threading.Thread(target=live)
    lives.start()
    with pytest.raises(InstanceError, match="did not come within 0 seconds"):
        others.exchange("values", b"")
    began = time.monotonic()
    others.leave()
    assert time.monotonic() - began > 0.25
    stop.set()
    lives.join()
    assert store.closed


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)  # the thread that would have ended it
@pytest.mark.parametrize("leaves", [False, True])
def test_an_instance_0_that_does_not_answer_is_named(ended: Ended, leaves: bool) -> None:
    store = Store()
    others = InstanceGroup(Place(2, 1), store, 1000.0)  # type: ignore[arg-type]
    store.answers.clear()
    waits = threading.Thread(target=others.leave if leaves else lambda: others.exchange("values", b""), daemon=True)
    waits.start()
    where = "at its end" if leaves else "in 'values'"
    try:
        said = f"ipu_tf: Instance 1 waits {where} for instance 0, which is gone: it gave no answer for 0 seconds. "
        assert ended() == [said + "The process ends."]
    finally:
        store.values["exchange/values/0/0"] = b""
        store.answers.set()
        waits.join()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # as above
def test_a_program_that_waits_for_an_instance_that_is_gone_ends_the_process(ended: Ended) -> None:
    store = Store()
    others = InstanceGroup(Place(2, 0), store, 1000.0)  # type: ignore[arg-type]
    store.values["alive/1"] = "5 "
    with others.in_program("train step"):
        (said,) = ended()
    assert said.startswith("ipu_tf: Instance 0 waits in the program 'train step' for instance 1, which is gone")
    store.values["ended/1"] = ""
    others.leave()
    assert store.waited == [1.0]


def test_a_program_goes_on_for_a_while_after_another_instance_ended(ended: Ended) -> None:
    """From that end on, not from its own beginning: it may need nothing more of the other one."""
    store = Store()
    others = InstanceGroup(Place(2, 0), store, 1000.0)  # type: ignore[arg-type]
    alive = threading.Event()

    def live() -> None:
        for beat in range(10_000):
            if alive.wait(0.01):
                return
            store.values["alive/1"] = f"{beat} train step"

    living = threading.Thread(target=live)
    living.start()
    with others.in_program("train step"):
        time.sleep(0.5)  # longer than LEFT_ALONE
        begun = time.monotonic()
        store.values["ended/1"] = ""
        (said,) = ended()
        assert time.monotonic() - begun >= 0.3
    alive.set()
    living.join()
    assert said.startswith("ipu_tf: Instance 0 waits in the program 'train step' for instance 1, which has ended")
    others.leave()


def test_names_with_slashes_are_other_names() -> None:
    store = Store()
    others = InstanceGroup(Place(2, 0), store, 1000.0)  # type: ignore[arg-type]
    for name in ("x", "x/0", "x/0/1"):
        store.values[f"exchange/{quote(name, safe='')}/0/1"] = name.encode()
    assert [others.exchange(name, b"")[1] for name in ("x", "x/0", "x/0/1")] == [b"x", b"x/0", b"x/0/1"]
    own = [key for key in store.values if key.startswith("exchange/") and key.endswith("/0")]
    assert len(own) == 3 and all(key.count("/") == 3 for key in own)
    others.leave()
