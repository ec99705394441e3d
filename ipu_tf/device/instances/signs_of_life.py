"""`SignsOfLife`: what the instances of a program say of themselves every few seconds, and what became of others.

every instance ──alive/1, ended/1──► store of instance 0 ──► fate of instance 1, as the others see it
               ◄──an answer──────────────┘                   (none: instance 0 is the one that is gone)
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import NoReturn

from ipu_tf.device.instances.coordination import Coordination
from ipu_tf.device.instances.place import Place

BEAT = 2.0
"""Seconds between the signs of life that an instance gives."""
GONE_AFTER = 20.0
"""Seconds without one after which it counts as gone."""
LEFT_ALONE = 30.0
"""Seconds for which a program may go on by itself after another instance ended."""
_LEFT_ALONE_CODE = 1
_LOOK = 1.0
"""Seconds between two looks whether instance 0 answered."""


class SignsOfLife:
    """Gives this instance's signs of life, and says why another one will not come.

    The process is ended where nothing else can end a wait: in a program of XLA's for an instance that will not come,
    and for an answer of instance 0, which has the store.

    Args:
        own: which instance this is.
        coordination: the connection to the others.
        timeout: seconds for which it waits for another instance.
    """

    def __init__(self, own: Place, coordination: Coordination, timeout: float) -> None:
        self._own = own.index
        self._others = [other for other in range(own.count) if other != own.index]
        self._coordination = coordination
        self._timeout = timeout
        self._seen: dict[int, tuple[str | None, float]] = {}
        self._lost: set[int] = set()
        self._dead: set[int] = set()
        self._ended_at: dict[int, float] = {}
        self._waits: list[str] = []
        self._program: tuple[str, float] | None = None
        self._unanswered = 0
        self._ended, self._left = threading.Event(), threading.Event()
        threading.Thread(target=self._beat, name="instance: signs of life", daemon=True).start()
        if self._own:
            threading.Thread(target=self._watch, name="instance: answers of instance 0", daemon=True).start()

    @property
    def lost(self) -> bool:
        """Whether an instance was seen to be gone, or did not come in time."""
        return bool(self._lost)

    def give_up(self, other: int) -> None:
        """Notes that an instance did not come in time."""
        self._lost.add(other)

    def saw_end(self, other: int) -> None:
        """Notes that the process of an instance has ended: nobody waits for its signs."""
        self._dead.add(other)
        self._lost.add(other)

    def fate(self, other: int) -> str:
        """Returns why another instance will not come: it ended, or is gone; empty if it may."""
        ended = self._coordination.noted(f"ended/{other}") is not None
        return self._judged(other, ended, None if ended else self._coordination.noted(f"alive/{other}"))

    @contextlib.contextmanager
    def waiting(self, where: str, program: str = "") -> Iterator[None]:
        """Context manager: this instance waits for others; who does not come to a program is named.

        Args:
            where: what it waits in, as errors say it.
            program: the program of XLA's that it is.
        """
        self._waits.append(where)
        self._program = (program, time.monotonic()) if program else self._program
        try:
            yield
        finally:
            self._program = None if program else self._program
            self._waits.remove(where)

    def find_lost(self) -> str:
        """Returns which instance ended, or gives no sign of life; waits for some seconds to see it."""
        with contextlib.suppress(Exception):
            before = self._coordination.all_noted("alive")
            time.sleep(3 * BEAT)
            ended, now = self._coordination.all_noted("ended"), self._coordination.all_noted("alive")
            for other in self._others:
                if other in ended:
                    return f"instance {other} has ended"
                if now.get(other) == before.get(other):
                    self._lost.add(other)
                    return f"instance {other} gives no sign of life"
        return "which one is not known"

    def say_ended(self) -> None:
        """Says that this instance ends."""
        self._coordination.note(f"ended/{self._own}", "")

    @contextlib.contextmanager
    def leaving(self) -> Iterator[None]:
        """Context manager: the connection is closed; no signs are given any more."""
        self._ended.set()
        self._unanswered = 0
        yield
        self._left.set()

    def _judged(self, other: int, ended: bool, sign: str | None) -> str:
        """Returns an instance's fate, by its last sign of life."""
        if ended or other in self._dead:
            return "has ended"
        now = time.monotonic()
        last, since = self._seen.setdefault(other, (sign, now))
        if sign != last:
            self._seen[other] = sign, now
        elif now - since > GONE_AFTER:
            self._lost.add(other)
            return f"is gone: it gave no sign of life for {GONE_AFTER:.0f} seconds"
        return ""

    def _beat(self) -> None:
        """Gives signs of life until this instance leaves; ends the process if a program waits for one that is gone."""
        beat = 0
        with contextlib.suppress(Exception):  # the connection ends with instance 0
            while not self._ended.wait(BEAT):
                beat += 1
                program = self._program
                self._coordination.note(f"alive/{self._own}", f"{beat} {program[0] if program else ''}")
                if program is not None:
                    self._check_program(program)
                self._unanswered = 0

    def _check_program(self, program: tuple[str, float]) -> None:
        """Ends the process if its program waits for an instance that will not come: XLA's wait has no other end."""
        what, since = program
        ended, signs = self._coordination.all_noted("ended"), self._coordination.all_noted("alive")
        fates = {other: self._judged(other, other in ended, signs.get(other)) for other in self._others}
        now = time.monotonic()
        seconds, patience = now - since, min(LEFT_ALONE, self._timeout)
        for other, fate in fates.items() if seconds > patience else ():
            if other in ended and now - self._ended_at.setdefault(other, now) < patience:
                continue  # the program may need nothing of it
            if not fate and seconds > self._timeout and signs.get(other, "").partition(" ")[2] != what:
                fate = f"is not in it after {self._timeout:.0f} seconds (IPU_TF_INSTANCE_TIMEOUT sets them)"
            if fate and self._program is program:
                self._end_process(f"waits in the program '{what}' for instance {other}, which {fate}")

    def _watch(self) -> None:
        """Ends the process if instance 0 does not answer: neither a wait for it nor the process's end has a bound.

        It counts looks, not seconds: a process that stood still itself has not waited.
        """
        while not self._left.wait(_LOOK):
            self._unanswered += 1
            if self._unanswered * _LOOK > GONE_AFTER:
                where = "".join(f" {each}" for each in self._waits[-1:])
                self._end_process(
                    f"waits{where} for instance 0, which is gone: it gave no answer for {GONE_AFTER:.0f} seconds"
                )

    def _end_process(self, why: str) -> NoReturn:
        """Ends the process at once, with what it printed before."""
        flushing = threading.Thread(target=sys.stdout.flush, daemon=True)
        flushing.start()  # another thread may stand in it, for ever
        flushing.join(_LOOK)
        print(f"ipu_tf: Instance {self._own} {why}. The process ends.", file=sys.stderr, flush=True)
        os._exit(_LEFT_ALONE_CODE)
