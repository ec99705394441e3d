"""`InstanceGroup`: the instances that run this program together, joined; every wait for another one is bounded."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

from ipu_tf.device.errors import DeviceError
from ipu_tf.device.instances.coordination import Coordination
from ipu_tf.device.instances.place import Place

_LOOK_AFTER = 0.5
"""Seconds of a wait after which it looks what became of the other instance."""
_BEAT = 2.0
"""Seconds between the signs of life that an instance gives."""
_GONE_AFTER = 20.0
"""Seconds without one after which it counts as gone."""
_LEFT_ALONE = 30.0
"""Seconds for which a program may go on by itself after another instance ended."""
_LEFT_ALONE_CODE = 1
_CLOSING = 10.0
"""Seconds for which instance 0 waits for the others to close their connections, after they ended."""


class InstanceError(DeviceError):
    """Raised if instances cannot be joined, or one waits for another that ended, is gone, or does not come."""


class InstanceGroup:
    """The instances of a program, which this process has joined.

    Args:
        own: which one this is.
        coordination: the connection to the others.
        timeout: seconds for which it waits for another instance.
    """

    def __init__(self, own: Place, coordination: Coordination, timeout: float) -> None:
        self.place = own
        self._coordination = coordination
        self._timeout = timeout
        self._uses: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._seen: dict[int, tuple[str | None, float]] = {}
        self._ended = threading.Event()
        self._program: tuple[str, float] | None = None
        threading.Thread(target=self._beat, name="instance: signs of life", daemon=True).start()

    def exchange(self, name: str, value: bytes) -> list[bytes]:
        """Gives a value to all instances; waits for the values that they give by the same name.

        Values of one name are matched in the order in which each instance gives them; different names do not wait for
        each other.

        Args:
            name: what the value is called.
            value: this instance's.

        Returns:
            The values of all instances, instance 0's first.

        Raises:
            InstanceError: if an instance ended, or does not come within the timeout.
        """
        with self._lock:
            use = self._uses[name]
            self._uses[name] += 1
        self._coordination.put(f"exchange/{name}/{use}/{self.place.index}", value)
        values = {other: self._wait(f"exchange/{name}/{use}/{other}", other, name) for other in self._others()}
        if use:  # all have given this one: they have read the one before
            self._coordination.delete(f"exchange/{name}/{use - 1}/{self.place.index}")
        return [values.get(instance, value) for instance in range(self.place.count)]

    @contextlib.contextmanager
    def in_program(self, what: str) -> Iterator[None]:
        """Context manager: a program runs that waits for the other instances; who does not come is named.

        Raises:
            InstanceError: if XLA loses the connection to another instance.
        """
        self._program = what, time.monotonic()
        try:
            yield
        except Exception as error:
            if "Gloo" not in str(error) and "NCCL" not in str(error):
                raise
            fate = self._find_lost()
            raise InstanceError(
                f"Instance {self.place.index} lost another instance in the program '{what}': {fate}. XLA says: "
                f"{str(error).splitlines()[0]}"
            ) from None
        finally:
            self._program = None

    def leave(self) -> None:
        """Says that this instance ends; instance 0, where the others' connections end, waits until they have too."""
        own = self.place.index
        with contextlib.suppress(Exception):  # another instance that is gone is no fault of this one
            self._coordination.note(f"ended/{own}", "")
            until = time.monotonic() + self._timeout
            left = set(self._others()) if own == 0 else set()
            while left and time.monotonic() < until:
                left = {other for other in left if not self.fate(other)}
                time.sleep(0.05 if left else 0)
            if own == 0:
                self._coordination.wait_until_alone(_CLOSING)
        self._ended.set()
        self._coordination.leave()

    def _wait(self, key: str, other: int, what: str) -> bytes:
        """Waits for a value of another instance."""
        until = time.monotonic() + self._timeout
        while True:
            value = self._coordination.get(key, min(_LOOK_AFTER, self._timeout))
            fate = self.fate(other) if value is None else ""
            if fate:  # what it gave before it ended counts
                value = self._coordination.get(key, 0.01)
            elif value is None and time.monotonic() > until:
                fate = f"did not come within {self._timeout:.0f} seconds (IPU_TF_INSTANCE_TIMEOUT sets them)"
            if value is not None:
                return value
            if fate:
                own = self.place.index
                raise InstanceError(f"Instance {own} waited for instance {other} in '{what}': instance {other} {fate}.")

    def fate(self, other: int) -> str:
        """Returns why another instance will not come: it ended, or is gone; empty if it may."""
        if self._coordination.noted(f"ended/{other}") is not None:
            return "has ended"
        now, sign = time.monotonic(), self._coordination.noted(f"alive/{other}")
        last, since = self._seen.setdefault(other, (sign, now))
        if sign != last:
            self._seen[other] = sign, now
        elif now - since > _GONE_AFTER:
            return f"is gone: it gave no sign of life for {_GONE_AFTER:.0f} seconds"
        return ""

    def _others(self) -> Iterator[int]:
        return (other for other in range(self.place.count) if other != self.place.index)

    def _find_lost(self) -> str:
        """Returns which instance ended, or gives no sign of life; waits for some seconds to see it."""
        with contextlib.suppress(Exception):
            before = {other: self._coordination.noted(f"alive/{other}") for other in self._others()}
            time.sleep(3 * _BEAT)
            for other, sign in before.items():
                if self._coordination.noted(f"ended/{other}") is not None:
                    return f"instance {other} has ended"
                if self._coordination.noted(f"alive/{other}") == sign:
                    return f"instance {other} gives no sign of life"
        return "which one is not known"

    def _beat(self) -> None:
        """Gives signs of life until this instance leaves; ends the process if a program waits for one that is gone."""
        beat = 0
        with contextlib.suppress(Exception):  # the connection ends with instance 0
            while not self._ended.wait(_BEAT):
                beat += 1
                now = "" if self._program is None else self._program[0]
                self._coordination.note(f"alive/{self.place.index}", f"{beat} {now}")
                self._check_program()

    def _check_program(self) -> None:
        """Ends the process if its program waits for an instance that will not come: XLA's wait has no other end."""
        program = self._program
        if program is None:
            return
        what, since = program
        seconds = time.monotonic() - since
        for other in self._others() if seconds > min(_LEFT_ALONE, self._timeout) else ():
            fate = self.fate(other)
            sign = self._coordination.noted(f"alive/{other}") or ""
            if not fate and seconds > self._timeout and sign.partition(" ")[2] != what:
                fate = f"is not in it after {self._timeout:.0f} seconds (IPU_TF_INSTANCE_TIMEOUT sets them)"
            if fate and self._program is program:
                text = f"Instance {self.place.index} waits in the program '{what}' for instance {other}, which {fate}."
                print(f"ipu_tf: {text} The process ends.", file=sys.stderr, flush=True)
                os._exit(_LEFT_ALONE_CODE)
