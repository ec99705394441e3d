"""Arguments that queues took up to SDK 2.2: the feed's name first, replication factors, `outfeed_all`."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any


def takes_former_arguments(
    place: int, dropped: Sequence[str] = (), modes: type[enum.Enum] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorates a queue's `__init__` to take the arguments of former SDKs, which are not needed any more.

    Args:
        place: of the feed's name among the positional arguments, `self` not counted. Only a text is taken for it.
        dropped: keywords without effect.
        modes: the enumeration of outfeeds: `outfeed_all=True` is its ALL, False its LAST.
    """

    def decorate(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def former(self: Any, *args: Any, **kwargs: Any) -> None:
            if len(args) > place and isinstance(args[place], str):
                args = (*args[:place], *args[place + 1 :])
            for name in dropped:
                kwargs.pop(name, None)
            everything = kwargs.pop("outfeed_all", None) if modes is not None else None
            if modes is not None and everything is not None:
                kwargs.setdefault("outfeed_mode", modes["ALL" if everything else "LAST"])
            init(self, *args, **kwargs)

        return former

    return decorate
