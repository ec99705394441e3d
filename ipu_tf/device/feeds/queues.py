"""Registry of the process's infeeds and outfeeds by name, in which running programs look them up."""

from __future__ import annotations

import collections
import contextlib
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.errors import (
    InfeedInUse,
    InfeedReplicaMismatch,
    OutfeedReplicaMismatch,
    QueueReplicationError,
    UnknownQueue,
)
from ipu_tf.device.feeds.infeed import Infeed
from ipu_tf.device.feeds.outfeed import Outfeed

_lock = threading.Lock()
_infeeds: weakref.WeakValueDictionary[str, Infeed] = register_state("infeeds by name", weakref.WeakValueDictionary())
_kept: dict[str, Infeed] = register_state("infeeds that are kept until they are removed", {})
_outfeeds: dict[str, Outfeed] = register_state("outfeeds by name", {})
#: By the name of the queue, which may be deleted and started again.
_declared: dict[str, int] = register_state("numbers of replicas that queues are made for", {})
_users: collections.Counter[str] = register_state(
    "running programs by queue", collections.Counter(), kept="each ends its use itself"
)


def add_infeed(infeed: Infeed, keep_in: dict[str, Infeed] | None = None) -> None:
    """Registers an infeed until it is removed; replaces a queue of the same name.

    Args:
        infeed: the infeed.
        keep_in: keeps it in place of the registry, which then forgets it together with that.
    """
    with _lock:
        (_kept if keep_in is None else keep_in)[infeed.name] = _infeeds[infeed.name] = infeed


def add_outfeed(outfeed: Outfeed) -> None:
    """Registers an outfeed; replaces a queue of the same name."""
    with _lock:
        _outfeeds[outfeed.name] = outfeed


def infeed(name: str) -> Infeed:
    """Returns the infeed of this name.

    Raises:
        UnknownQueue: if there is none.
    """
    with _lock:
        found = _infeeds.get(name)  # it may be collected at any time, unless it is in this variable
        if found is None:
            raise UnknownQueue("infeed", name)
        return found


@contextlib.contextmanager
def known_as(names: Mapping[str, str]) -> Iterator[None]:
    """Context manager: programs dequeue from infeeds by further names, each with the infeed's; raises as `infeed`."""
    found = {further: infeed(name) for further, name in names.items()}
    with _lock:
        _infeeds.update(found)
    try:
        yield
    finally:
        with _lock:
            for further in found:
                _infeeds.pop(further, None)


def is_unread(name: str) -> bool:
    """Returns whether there is an infeed of this name, of whose data nothing was read yet."""
    with _lock:
        return name in _infeeds and _infeeds[name].unread


def is_unused(name: str) -> bool:
    """Returns whether there is no outfeed of this name, or one that no program has used, with nothing in it."""
    with _lock:
        return name not in _outfeeds or _outfeeds[name].unused


def outfeed(name: str) -> Outfeed:
    """Returns the outfeed of this name.

    Raises:
        UnknownQueue: if there is none.
    """
    with _lock:
        if name not in _outfeeds:
            raise UnknownQueue("outfeed", name)
        return _outfeeds[name]


def remove(name: str) -> bool:
    """Unregisters a queue; returns whether it existed.

    Raises:
        InfeedInUse: for an infeed of a program that runs.
    """
    with _lock:
        if name in _infeeds and _users[name]:
            raise InfeedInUse(name)
        # An empty queue counts too, though it is false as a bool.
        removed = (_infeeds.pop(name, None), _outfeeds.pop(name, None))
        _kept.pop(name, None)
        return any(queue is not None for queue in removed)


def declare_replicas(name: str, count: int) -> None:
    """Allows only programs of so many replicas to use a queue, under every configuration."""
    with _lock:
        _declared[name] = count


def reset_replica_counts() -> None:
    """Resets the number of replicas that each queue is used with, so that any number is allowed next."""
    with _lock:
        queues: list[Infeed | Outfeed] = [*_infeeds.values(), *_outfeeds.values()]
        for queue in queues:
            queue.replicas = None


@contextlib.contextmanager
def used(names: Sequence[str], replicas: int) -> Iterator[None]:
    """Context manager: marks the queues of these names as used by a program with so many replicas.

    Raises:
        InfeedReplicaMismatch, OutfeedReplicaMismatch: another number of replicas used one of them before.
        QueueReplicationError: one of them was made for another number of replicas.
    """
    with _lock:
        names = [_infeeds[name].name if name in _infeeds else name for name in names]  # they may be further names
        _check_replicas(names, replicas)
        _users.update(names)
    try:
        yield
    finally:
        with _lock:
            _users.subtract(names)


def _check_replicas(names: Sequence[str], replicas: int) -> None:
    """Checks that queues were used with the same number of replicas before, and records `replicas`."""
    for name in names:
        if _declared.get(name, replicas) != replicas:
            raise QueueReplicationError(name, _declared[name], replicas)
    infeeds = [_infeeds[name] for name in names if name in _infeeds]
    outfeeds = [_outfeeds[name] for name in names if name in _outfeeds]
    for source in infeeds:
        if source.replicas not in (None, replicas):
            raise InfeedReplicaMismatch(source.name, source.replicas, replicas)
    for sink in outfeeds:
        if sink.replicas not in (None, replicas):
            raise OutfeedReplicaMismatch(sink.name, sink.replicas, replicas)
    queues: list[Infeed | Outfeed] = [*infeeds, *outfeeds]
    for queue in queues:
        queue.replicas = replicas


_changed = threading.Condition()
_programs = register_state("number of running programs", ProcessValue(0), kept="each ends itself")


@contextlib.contextmanager
def program_running() -> Iterator[None]:
    """Context manager: counts one more running program."""
    with _changed:
        _programs.value += 1
    try:
        yield
    finally:
        with _changed:
            _programs.value -= 1
            _changed.notify_all()


def wait_for_programs() -> None:
    """Waits until no program is running."""
    with _changed:
        _changed.wait_for(lambda: _programs.value == 0)
