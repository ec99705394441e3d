"""IPU devices of a configuration: `auto_select_ipus` and `select_ipus` resolved to numbers of emulated IPUs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from ipu_tf._config.errors import failed_precondition, invalid_argument
from ipu_tf.device.environment import ipu_count

_CPU_DEVICE = re.compile(r"(/job:\w+)?(/replica:\d+)?(/task:\d+)?/?(device:)?cpu(:\d+)?", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class IPUDevice:
    """A TensorFlow device made of emulated IPUs.

    Attributes:
        ordinal: k in `/device:IPU:k`.
        num_ipus: how many emulated IPUs it has, at least 1.

    Example:
        >>> IPUDevice(1, 4).name
        '/device:IPU:1'
    """

    ordinal: int
    num_ipus: int

    @property
    def name(self) -> str:
        """The device string, `/device:IPU:k`."""
        return f"/device:IPU:{self.ordinal}"

    def __str__(self) -> str:
        """The device string and the number of IPUs, for messages."""
        return f"{self.name} with {self.num_ipus} emulated IPU{'' if self.num_ipus == 1 else 's'}"


def multi_ipu_sizes(available: int) -> tuple[int, ...]:
    """The number of IPUs of each id that `select_ipus` knows, on an emulated machine of `available` IPUs.

    First come the single IPUs, then the pairs of neighbours, then the fours, and so on, as many as there are.

    Example:
        >>> multi_ipu_sizes(4)
        (1, 1, 1, 1, 2, 2, 4)
    """
    sizes: list[int] = []
    size = 1
    while size <= available:
        sizes += [size] * (available // size)
        size *= 2
    return tuple(sizes)


def ipus_of_id(index: int) -> tuple[int, ...]:
    """Returns the numbers of the IPUs that an id of `select_ipus` has.

    Raises:
        IndexError: if there is no such id.

    Example:
        >>> ipus_of_id(3)
        (3,)
    """
    sizes = multi_ipu_sizes(ipu_count())
    size = sizes[index]
    first = (index - sizes.index(size)) * size
    return tuple(range(first, first + size))


def auto_selected_devices(counts: Sequence[int], on_model: bool = False) -> tuple[IPUDevice, ...]:
    """Devices with the given numbers of IPUs.

    Args:
        counts: how many IPUs each device is to have.
        on_model: whether they are those of the IPU model, which has devices of any number of IPUs from 1.

    Raises:
        tf.errors.FailedPreconditionError: if the emulated machine has no group of so many IPUs: groups are powers of
            two, up to the number of emulated IPUs.
    """
    sizes = sorted(set(multi_ipu_sizes(ipu_count())))
    for ordinal, count in enumerate(counts):
        if not (count >= 1 if on_model else count in sizes):
            raise failed_precondition(
                f"Unsupported number of IPUs requested - could not find an IPU device with {count} IPUs "
                f"for the TensorFlow virtual device /device:IPU:{ordinal}. Use `gc-info -l` to view the "
                f"available device configurations. (The IPUs are emulated: set each "
                f"number in `auto_select_ipus` to {_advice(sizes, on_model)}.)"
            )
    return tuple(IPUDevice(ordinal, count) for ordinal, count in enumerate(counts))


def _advice(sizes: Sequence[int], on_model: bool) -> str:
    if on_model:
        return "at least 1"
    *others, last = map(str, sizes)
    given = f"{', '.join(others)} or {last}" if others else last
    return f"{given}, or set TF_IPU_COUNT for more IPUs; the IPU model has devices of any number"


def selected_devices(ids: Sequence[int]) -> tuple[IPUDevice, ...]:
    """Devices with the configurations of IPUs that have the given ids in the table of `multi_ipu_sizes`.

    Raises:
        tf.errors.InvalidArgumentError: if an id is not in the table.
    """
    sizes = multi_ipu_sizes(ipu_count())
    for ordinal, index in enumerate(ids):
        if not 0 <= index < len(sizes):
            raise invalid_argument(
                f"No device matches the requested configuration for TensorFlow virtual device "
                f"/device:IPU:{ordinal}. `select_ipus` asks for id {index}; the emulated machine has ids "
                f"{_table_text(sizes)}. Set one of these, or set TF_IPU_COUNT for another number of IPUs."
            )
    return tuple(IPUDevice(ordinal, sizes[index]) for ordinal, index in enumerate(ids))


def device_id(ipus: int, selected: Sequence[int] = ()) -> int:
    """Returns the first id of `select_ipus` that has so many IPUs; the first selected one, if that has them.

    Raises:
        tf.errors.FailedPreconditionError: if none has so many.

    Example:
        >>> device_id(1), device_id(1, selected=[0])
        (0, 0)
    """
    sizes = multi_ipu_sizes(ipu_count())
    if selected and sizes[selected[0]] == ipus:
        return selected[0]
    if ipus not in sizes:
        raise failed_precondition(
            f"No id has {ipus} IPUs: the emulated machine has groups of {', '.join(map(str, sorted(set(sizes))))}. "
            "Ask for one of these numbers, or set TF_IPU_COUNT for another number of IPUs."
        )
    return sizes.index(ipus)


def check_cpu_device(device: str) -> None:
    """Check the name of the host CPU that configures the IPUs. Every CPU of this host is the same here.

    Raises:
        ValueError: if it does not name a CPU.
    """
    if not isinstance(device, str) or not _CPU_DEVICE.fullmatch(device):
        raise ValueError(
            f"`device` must name the CPU that is local to the IPUs, for example 'cpu' or '/device:CPU:0'. "
            f"Received: {device!r}."
        )


def _table_text(sizes: Sequence[int]) -> str:
    """The id table in words: `0-3 (1 IPU each), 4-5 (2 IPUs each), 6 (4 IPUs)`."""
    parts = []
    for size in sorted(set(sizes)):
        first, count = sizes.index(size), sizes.count(size)
        ids = str(first) if count == 1 else f"{first}-{first + count - 1}"
        parts.append(f"{ids} ({size} IPU{'' if size == 1 else 's'}{' each' if count > 1 else ''})")
    return ", ".join(parts)
