"""Arguments that queues took up to SDK 2.2: the feed's name first, replication factors, `outfeed_all`."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any

from ipu_tf._arguments.counts import checked_count
from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf.device.feeds import queues


def takes_former_arguments(
    queue: str, place: int, modes: type[enum.Enum] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorates a queue's `__init__` to take the arguments of former SDKs, which are not needed any more.

    `feed_name`, and an infeed's `data_to_prefetch`, are recorded as without effect. `replication_factor` must be that
    of the programs that use the queue, an outfeed's `io_batch_size` 1, its `outfeed_all` that of the mode.

    Args:
        queue: the class's name.
        place: of the feed's name among the positional arguments, `self` not counted. Only a text is taken for it.
        modes: the enumeration of outfeeds: `outfeed_all=True` is its ALL, False its LAST; None for an infeed.
    """
    names = ("feed_name", "replication_factor", "data_to_prefetch" if modes is None else "io_batch_size")

    def decorate(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def former(self: Any, *args: Any, **kwargs: Any) -> None:
            given = {name: kwargs.pop(name, None) for name in names}
            if len(args) > place and isinstance(args[place], str):
                args, given["feed_name"] = _without_name(queue, args, place, given["feed_name"])
            if modes is not None and (everything := kwargs.pop("outfeed_all", None)) is not None:
                args = _with_mode(modes, everything, args or (kwargs.pop("outfeed_mode", None),))
            replicas = _checked(queue, given)
            init(self, *args, **kwargs)
            if replicas is not None:
                queues.declare_replicas(self._id, replicas)  # noqa: SLF001 - it is a part of the class

        return former

    return decorate


def _without_name(queue: str, args: tuple[Any, ...], place: int, named: Any) -> tuple[tuple[Any, ...], str]:
    if named is not None:
        raise TypeError(f"`{queue}` takes one name. Received: {args[place]!r} and feed_name={named!r}.")
    if len(args) > place + 2:
        raise TypeError(
            f"What `{queue}` takes by position after its name and one more argument differs among releases: give it by "
            f"keyword. Received: {args[place + 2 :]!r}."
        )
    return (*args[:place], *args[place + 1 :]), args[place]


def _with_mode(modes: type[enum.Enum], everything: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the positional arguments, of which the first is the mode, with the mode that `outfeed_all` says."""
    if not isinstance(everything, bool):
        raise TypeError(f"`outfeed_all` must be of type bool. Received: {everything!r}.")
    mode, given = modes["ALL" if everything else "LAST"], args[0]
    if given not in (None, mode):
        raise ValueError(
            f"`outfeed_all` and `outfeed_mode` contradict each other: give the mode alone. Received: "
            f"outfeed_all={everything} and outfeed_mode={given}."
        )
    return (mode, *args[1:])


def _checked(queue: str, given: dict[str, Any]) -> int | None:
    """Checks the arguments that are given, records those without effect, and returns the number of replicas."""
    name, replicas = given["feed_name"], given["replication_factor"]
    if name is not None and not isinstance(name, str):
        raise TypeError(f"`feed_name` must be of type str. Received: {name!r}.")
    for count in ("data_to_prefetch", "io_batch_size"):
        if given.get(count) is not None:
            checked_count(count, given[count])
    if given.get("io_batch_size") not in (None, 1):
        raise ValueError(
            f"`io_batch_size` must be 1: an outfeed gives rows one by one. Received: {given['io_batch_size']}."
        )
    for without_effect in ("feed_name", "data_to_prefetch"):
        record_ignored(f"{queue}.{without_effect}", given.get(without_effect), "results do not depend on it")
    return None if replicas is None else checked_count("replication_factor", replicas)
