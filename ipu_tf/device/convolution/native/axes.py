"""`three_axes`: pads sizes of one to three spatial axes to three, as native kernels for convolutions have them."""

from __future__ import annotations

from collections.abc import Sequence


def three_axes(sizes: Sequence[int], fill: int = 1) -> list[int]:
    """Returns the sizes of three axes, those that there are last.

    Example:
        >>> three_axes((5, 7))
        [1, 5, 7]
    """
    return [fill] * (3 - len(sizes)) + list(sizes)
