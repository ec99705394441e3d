"""Errors of the device. The surface turns them into the TensorFlow errors that Graphcore's interface promises."""

from __future__ import annotations


class DeviceError(RuntimeError):
    """Something the device was asked to do could not be done."""


class InfeedExhausted(DeviceError):
    """A program asked an infeed for more elements than its dataset has.

    Attributes:
        queue: the infeed's name.
        taken: how many elements it gave since it was started.
    """

    def __init__(self, queue: str, taken: int) -> None:
        self.queue = queue
        self.taken = taken
        super().__init__(
            f"The infeed '{queue}' ran out of data after {taken} elements. Use a dataset with more elements "
            "(dataset.repeat()), or run fewer iterations."
        )


class ElementShapeError(DeviceError, ValueError):
    """An element of an infeed has another shape than those before it."""

    def __init__(self, queue: str, number: int, index: int, wanted: tuple[int, ...], received: tuple[int, ...]) -> None:
        super().__init__(
            f"Tensor {index} of element {number} of '{queue}' must have the shape {wanted}, which the program was "
            f"compiled for. Received: shape {received}. If this is the last, partial batch of the data, leave it out "
            "(drop_remainder=True), or pad it."
        )


class UnknownQueue(DeviceError):
    """A program uses a queue that does not exist (any more).

    Attributes:
        kind: `infeed` or `outfeed`.
        name: the queue's name.
    """

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        super().__init__(f"The program uses the {kind} '{name}', which was deleted or never started.")


class MiniBatchesError(DeviceError):
    """Gradients are accumulated over a number of mini-batches that does not divide the loop's iterations.

    Args:
        mini_batches: how many mini-batches are accumulated.
        iterations: how many iterations the loop would run; None where only running it tells.
    """

    def __init__(self, mini_batches: int, iterations: int | None) -> None:
        if iterations is None:
            super().__init__(
                "Can't have runtime num mini batches for resource update: gradients are accumulated over "
                f"{mini_batches} mini-batches in a loop whose number of iterations depends on data. Use a loop with a "
                "fixed number of iterations, such as `loops.repeat`."
            )
            return
        super().__init__(
            f"Detected a gradient accumulation operation with {mini_batches} number of mini batches inside a loop with "
            f"{iterations} iterations.\nIt is required that the number of mini batches to accumulate evenly divides "
            "the number of loop iterations."
        )


class DeepFeedError(DeviceError, NotImplementedError):
    """A replicated program uses a queue where the host cannot stage it."""

    def __init__(self, queue: str, replicas: int) -> None:
        super().__init__(
            f"The queue '{queue}' is used in a loop or branch inside of another loop, in a program of {replicas} "
            "replicas. Replicas can only use a queue straight in the body of an outermost loop, once an iteration. Use "
            "it there, or run on a device with one IPU."
        )


class NoTrainingLoop(DeviceError):
    """Gradients are accumulated outside of a loop."""

    def __init__(self) -> None:
        super().__init__(
            "Detected a gradient accumulation operation which is not inside a training loop. The model with the "
            "gradient accumulation operation needs to be wrapped in a training loop.\nWrap the step in `loops.repeat`."
        )


class ReplicaGroupError(DeviceError, ValueError):
    """Replicas were asked to meet in groups that do not divide them.

    Args:
        group: the size of a group.
        replicas: how many replicas there are.
    """

    def __init__(self, group: int, replicas: int) -> None:
        super().__init__(
            f"The replica group size (got {group}) does not evenly divide the total number of replicas (got {replicas})"
        )
