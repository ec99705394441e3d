"""`ExecutionQueues`: infeeds and outfeeds of one execution, passed to it or else registered in the process."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from ipu_tf.device.feeds import queues
from ipu_tf.device.feeds.infeed import Infeed
from ipu_tf.device.feeds.outfeed import Outfeed


@dataclasses.dataclass(frozen=True)
class ExecutionQueues:
    """Queues of one execution by the names that its program has for them.

    A program's names that are in neither mapping are looked up among the queues that are registered in the process,
    as those of `IPUInfeedQueue` and `IPUOutfeedQueue` are.

    Attributes:
        own_infeeds: infeeds passed to the execution.
        own_outfeeds: outfeeds passed to it.
    """

    own_infeeds: Mapping[str, Infeed] = dataclasses.field(default_factory=dict)
    own_outfeeds: Mapping[str, Outfeed] = dataclasses.field(default_factory=dict)

    def infeed(self, name: str) -> Infeed:
        """Returns the infeed of this name.

        Raises:
            UnknownQueue: if there is none.
        """
        return self.own_infeeds[name] if name in self.own_infeeds else queues.infeed(name)

    def outfeed(self, name: str) -> Outfeed:
        """Returns the outfeed of this name.

        Raises:
            UnknownQueue: if there is none.
        """
        return self.own_outfeeds[name] if name in self.own_outfeeds else queues.outfeed(name)

    def infeeds(self, names: Iterable[str]) -> dict[str, Infeed]:
        """Returns infeeds by name; raises as `infeed` does."""
        return {name: self.infeed(name) for name in names}

    def outfeeds(self, names: Iterable[str]) -> dict[str, Outfeed]:
        """Returns outfeeds by name; raises as `outfeed` does."""
        return {name: self.outfeed(name) for name in names}

    def registered(self, names: Iterable[str]) -> list[str]:
        """Returns those of some names that were not passed to the execution."""
        return [name for name in names if name not in self.own_infeeds and name not in self.own_outfeeds]
