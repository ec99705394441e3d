"""`ExecutionContext`: what one run of a program's compiled parts reads and writes: queues and arrays."""

from __future__ import annotations

import dataclasses

from ipu_tf.device.feeds.execution_queues import ExecutionQueues
from ipu_tf.device.program.slots import Slots
from ipu_tf.device.run.compiled_parts import CompiledParts
from ipu_tf.device.run.lease import Lease, NoLease


@dataclasses.dataclass(frozen=True)
class ExecutionContext:
    """Queues and arrays of one execution. It ends with it: an infeed holds its iterator until nothing refers to it.

    Attributes:
        executable: the compiled parts, which are kept for further executions.
        queues: its infeeds and outfeeds.
        slots: its arrays.
        lease: lets others use its variables while it waits for data.
    """

    executable: CompiledParts
    queues: ExecutionQueues
    slots: Slots
    lease: Lease = NoLease()
