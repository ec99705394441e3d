"""Checks fields of a configuration against each other, and `layers_per_ipu` against a model's blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class IncompatibleIPUConfigError(ValueError):
    """Raised if the fields of a configuration contradict each other, or a model."""


def check_together(values: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Checks fields that depend on each other.

    Args:
        values: of all fields.
        given: of those that were given.

    Raises:
        ValueError: if they contradict each other, as `IncompatibleIPUConfigError`, and for an unknown output mode.
    """
    ipus, layers = values["ipus_per_replica"], values["layers_per_ipu"]
    if len(layers) != ipus and ipus > 1 and tuple(layers) != (-1,):
        raise IncompatibleIPUConfigError(
            f"layers_per_ipu={list(layers)} has {len(layers)} IPUs, and ipus_per_replica={ipus}."
        )
    proportion = values["matmul_proportion"]
    if isinstance(proportion, (list, tuple)) and len(proportion) != ipus:
        raise IncompatibleIPUConfigError(
            f"matmul_proportion={list(proportion)} should have a number for each of the {ipus} IPUs."
        )
    for what in ("embedding", "projection"):
        pair = (f"{what}_serialization_factor", f"serialized_{what}_splits_per_ipu")
        if all(given.get(name) for name in pair):
            raise IncompatibleIPUConfigError(f"Only one of {pair[0]} and {pair[1]} can be given.")
    if values["output_mode"] not in ("all", "sum", "final", "default"):
        raise ValueError(f"output_mode is all, sum, final or default. Received: {values['output_mode']!r}.")


def expanded(layers_per_ipu: Sequence[int], ipus: int, blocks: int) -> tuple[int, ...]:
    """Returns how many of a model's blocks each IPU has: -1 stands for an equal share of what is left.

    Raises:
        IncompatibleIPUConfigError: if `layers_per_ipu` is not of that many.
    """
    layers = list(layers_per_ipu)
    if ipus == 1:
        return (blocks,)
    layers = layers * ipus if layers == [-1] else layers
    open_ipus = [ipu for ipu, count in enumerate(layers) if count == -1]
    left = blocks - sum(count for count in layers if count != -1)
    if left < 0 or (left and not open_ipus):
        raise IncompatibleIPUConfigError(
            f"layers_per_ipu={list(layers_per_ipu)} is for {blocks - left} blocks, and the model has {blocks}."
        )
    for ipu in open_ipus:
        layers[ipu] = left // len(open_ipus)
    if open_ipus:
        layers[open_ipus[-1]] += left % len(open_ipus)
    return tuple(layers)
