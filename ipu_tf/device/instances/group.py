"""`InstanceGroup`: the instances that run this program together, joined; every wait for another one is bounded."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from urllib.parse import quote

from ipu_tf.device.errors import DeviceError
from ipu_tf.device.instances.coordination import Coordination
from ipu_tf.device.instances.memory import SharedMemory
from ipu_tf.device.instances.place import Place
from ipu_tf.device.instances.signs_of_life import LEFT_ALONE, SignsOfLife

_LOOK_AFTER = 0.5
"""Seconds of a wait after which it looks what became of the other instance."""
_CLOSING, _CLOSING_WITHOUT = 10.0, 1.0
"""Seconds for which instance 0 waits for the others to close their connections, after they ended; without those that
are gone, which JAX cannot tell from them."""
_ENDED = re.compile(r"instance (\d+) has ended")
"""What `instance_sum.c` says of one that it waits for."""
EQUAL_DATA = (
    "Give every instance as many batches: by `take`, by `repeat` and `steps_per_epoch`, or one dataset in all with "
    "`AutoShardPolicy.DATA`."
)
"""What to do where instances do not have the same number of batches."""


class InstanceError(DeviceError):
    """Raised if instances cannot be joined, or one waits for another that ended, is gone, or does not come."""


class InstanceGroup:
    """The instances of a program, which this process has joined.

    Args:
        own: which one this is.
        coordination: the connection to the others.
        timeout: seconds for which it waits for another instance.

    Attributes:
        place: which one this is.
        connected: whether XLA's collectives of the instances are connected. `across` sets it.
        memory: what they share, if all run on one host. `joined` sets it.
    """

    def __init__(self, own: Place, coordination: Coordination, timeout: float) -> None:
        self.place = own
        self.connected = False
        self.memory: SharedMemory | None = None
        self._coordination = coordination
        self._timeout = timeout
        self._uses: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._signs = SignsOfLife(own, coordination, timeout)

    @property
    def lost(self) -> bool:
        """Whether another instance was seen to be gone, or did not come in time."""
        return self._signs.lost

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
        folder = f"exchange/{quote(name, safe='')}"  # a name may have slashes, which part keys
        with self._lock:
            use = self._uses[name]
            self._uses[name] += 1
        with self._signs.waiting(f"in '{name}'"):
            self._coordination.put(f"{folder}/{use}/{self.place.index}", value)
            values = {other: self._wait(f"{folder}/{use}/{other}", other, name) for other in self._others()}
        if use:  # all have given this one: they have read the one before
            self._coordination.delete(f"{folder}/{use - 1}/{self.place.index}")
        return [values.get(instance, value) for instance in range(self.place.count)]

    @contextlib.contextmanager
    def in_program(self, what: str) -> Iterator[None]:
        """Context manager: a program runs that waits for the other instances; who does not come is named.

        Raises:
            InstanceError: if XLA loses the connection to another instance, or it ends while this one waits for it.
        """
        try:
            with self._signs.waiting(f"in the program '{what}'", what):
                yield
        except Exception as error:
            ended = _ENDED.search(str(error))
            if ended is not None:
                self._signs.saw_end(int(ended[1]))
                raise InstanceError(
                    f"Instance {self.place.index} lost another instance in the program '{what}': {ended[0]}."
                ) from None
            if "Gloo" not in str(error) and "NCCL" not in str(error):
                raise
            raise InstanceError(
                f"Instance {self.place.index} lost another instance in the program '{what}': "
                f"{self._signs.find_lost()}. XLA says: {str(error).splitlines()[0]}"
            ) from None

    def leave(self) -> None:
        """Says that this instance ends; instance 0, where the others' connections end, waits until they have too.

        It does not wait for those that are gone.
        """
        with self._signs.waiting("at its end"):
            with contextlib.suppress(Exception):  # another instance that is gone is no fault of this one
                self._signs.say_ended()
                if self.place.index == 0:
                    self._wait_for_ends()
            if self.memory is not None:
                self.memory.close()
            with self._signs.leaving():
                self._coordination.leave()

    def _wait_for_ends(self) -> None:
        """Waits until the others have ended and closed their connections, or are gone."""
        until = time.monotonic() + (min(self._timeout, LEFT_ALONE) if self.lost else self._timeout)
        fates = [""]
        while not all(fates) and time.monotonic() < until:
            fates = [self._signs.fate(other) for other in self._others()]
            time.sleep(0.0 if all(fates) else 0.05)
        self._coordination.wait_until_alone(_CLOSING_WITHOUT if self.lost else _CLOSING)

    def _wait(self, key: str, other: int, what: str) -> bytes:
        """Waits for a value of another instance."""
        until = time.monotonic() + self._timeout
        while True:
            value = self._coordination.get(key, min(_LOOK_AFTER, self._timeout))
            fate = self._signs.fate(other) if value is None else ""
            if fate:  # what it gave before it ended counts
                value = self._coordination.get(key, 0.01)
            elif value is None and time.monotonic() > until:
                fate = f"did not come within {self._timeout:.0f} seconds (IPU_TF_INSTANCE_TIMEOUT sets them)"
                self._signs.give_up(other)
            if value is not None:
                return value
            if fate:
                own = self.place.index
                raise InstanceError(f"Instance {own} waited for instance {other} in '{what}': instance {other} {fate}.")

    def _others(self) -> Iterator[int]:
        return (other for other in range(self.place.count) if other != self.place.index)
