"""Exceptions of the device. `ipu_tf` converts them to the TensorFlow errors of Graphcore's interface."""

from __future__ import annotations

from ipu_tf.device.op_locations import OpLocation


class DeviceError(RuntimeError):
    """Base class of the device's errors."""


class InfeedExhausted(DeviceError):
    """Raised if a program dequeues more elements from an infeed than its dataset has.

    Attributes:
        queue: the infeed's name.
        taken: how many elements were dequeued since it was started.
    """

    def __init__(self, queue: str, taken: int) -> None:
        self.queue = queue
        self.taken = taken
        super().__init__(
            f"The infeed '{queue}' ran out of data after {taken} elements. Use a dataset with more elements "
            "(dataset.repeat()), or run fewer iterations."
        )


class InfeedTimeout(DeviceError):
    """Raised if an infeed's element does not arrive within the timeout.

    Attributes:
        queue: the infeed's name.
        step: the number of the missing element.
        seconds: the timeout.
    """

    def __init__(self, queue: str, step: int, seconds: float) -> None:
        self.queue = queue
        self.step = step
        self.seconds = seconds
        super().__init__(
            f"The infeed '{queue}' gave nothing for {seconds:.1f} seconds: step {step} of its data is still awaited. "
            "See what the dataset waits for; the environment variable IPU_TF_FEED_TIMEOUT sets the seconds that a "
            "program waits for an element."
        )


class ElementShapeError(DeviceError, ValueError):
    """Raised if an infeed's element has another shape than those before it."""

    def __init__(self, queue: str, number: int, index: int, wanted: tuple[int, ...], received: tuple[int, ...]) -> None:
        advice = (
            "If this is the last, partial batch of the data, leave it out (drop_remainder=True), or pad it."
            if wanted[1:] == received[1:] and len(wanted) == len(received)
            else "Pad the data, so that all elements have one shape."
        )
        super().__init__(
            f"Tensor {index} of element {number} of '{queue}' must have the shape {wanted}, which the program was "
            f"compiled for. Received: shape {received}. {advice}"
        )


class UnknownQueue(DeviceError):
    """Raised if a program uses a queue that does not exist or was deleted.

    Attributes:
        kind: `infeed` or `outfeed`.
        name: the queue's name.
    """

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        super().__init__(f"The program uses the {kind} '{name}', which was deleted or never started.")


class InfeedReplicaMismatch(DeviceError):
    """Raised if two programs with different numbers of replicas dequeue from one infeed.

    Args:
        name: the infeed's name.
        before: replicas of the program that dequeued before.
        wanted: replicas of this program.
    """

    def __init__(self, name: str, before: int, wanted: int) -> None:
        super().__init__(
            f"Iterator for feed {name} has already been setup with a replication factor of {before} when it should "
            f"have {wanted}.Infeeds can not be shared across graphs with different replication factors. Please create "
            "a new InfeedQueue."
        )


class OutfeedReplicaMismatch(DeviceError):
    """Raised if two programs with different numbers of replicas enqueue to one outfeed.

    Args:
        name: the outfeed's name.
        before: replicas of the program that enqueued before.
        wanted: replicas of this program.
    """

    def __init__(self, name: str, before: int, wanted: int) -> None:
        super().__init__(
            f"Outfeed with id='{name}' already exists but with a different tensor shape or replication factor. "
            f"Consider changing the `feed_name` in IPUOutfeedQueue. It has elements of {before} replicas. Received: a "
            f"program with {wanted}."
        )


class QueueReplicationError(DeviceError):
    """Raised if a program runs as another number of replicas than a queue was made for.

    Args:
        name: the queue's name.
        wanted: the queue's `replication_factor`.
        replicas: replicas of the program.
    """

    def __init__(self, name: str, wanted: int, replicas: int) -> None:
        super().__init__(
            f"The queue '{name}' was made with replication_factor={wanted}. Received: a program of {replicas} "
            "replicas, as many as the IPUs of its device allow. Leave `replication_factor` out, or configure another "
            "number of IPUs."
        )


class InfeedInUse(DeviceError):
    """Raised if an infeed is deleted while a program that uses it runs.

    Args:
        name: the infeed's name.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"Cannot delete infeed with id='{name}' while in use")


class AccumulationCountError(DeviceError):
    """Raised if the gradient accumulation count does not divide the loop's iterations.

    Args:
        count: the accumulation count.
        iterations: iterations of the loop; None for a data-dependent loop.
        location: where the program accumulates; None where it is not known.
    """

    def __init__(self, count: int, iterations: int | None, location: OpLocation | None = None) -> None:
        where = f"\n{location}" if location else ""
        if iterations is None:
            super().__init__(
                "Can't have runtime num mini batches for resource update: gradients are accumulated over "
                f"{count} mini-batches in a loop whose number of iterations depends on data. Use a loop with a "
                f"fixed number of iterations, such as `loops.repeat`.{where}"
            )
            return
        super().__init__(
            f"Detected a gradient accumulation operation with {count} number of mini batches inside a loop with "
            f"{iterations} iterations.\nIt is required that the number of mini batches to accumulate evenly divides "
            f"the number of loop iterations.{where}"
        )


class AccumulationOutsideLoopError(DeviceError):
    """Raised if gradients are accumulated outside of a loop."""

    def __init__(self) -> None:
        super().__init__(
            "Detected a gradient accumulation operation which is not inside a training loop. The model with the "
            "gradient accumulation operation needs to be wrapped in a training loop.\nWrap the step in `loops.repeat`."
        )


class ReplicaGroupError(DeviceError, ValueError):
    """Raised if the size of a collective's groups does not divide the number of replicas.

    Args:
        group: the size of a group.
        replicas: how many replicas there are.
    """

    def __init__(self, group: int, replicas: int) -> None:
        super().__init__(
            f"The replica group size (got {group}) does not evenly divide the total number of replicas (got {replicas})"
        )
