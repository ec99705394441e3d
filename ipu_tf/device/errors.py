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
