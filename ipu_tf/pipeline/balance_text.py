"""Explains a partition of layers into stages as text."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ipu_tf.pipeline.split import Split
from ipu_tf.pipeline.tables import bytes_text, count_text, share_text, table

_ROUNDING = 1.005
"""Costs are shown with two digits."""


def split_text(split: Split) -> str:
    """Formats a partition: a table of the layers, one of the stages, and the reasons for the boundaries.

    Example:
        >>> from ipu_tf.pipeline import LayerCosts, split_layers
        >>> layers = [LayerCosts(name, flops) for name, flops in [("a", 4), ("b", 1), ("c", 1), ("d", 6)]]
        >>> print(split_text(split_layers(layers, 2)))
        layer  FLOPs  share  parameters  activations  stage
        a          4  33.3%         0 B          0 B      0
        b          1   8.3%         0 B          0 B      0
        c          1   8.3%         0 B          0 B      0
        d          6  50.0%         0 B          0 B      1
        <BLANKLINE>
        stage  layers  FLOPs  stashed  bytes  cost
        0           3  50.0%        1    0 B  1.00
        1           1  50.0%        1    0 B  1.00
        <BLANKLINE>
        Cost is the FLOPs, in proportion to the mean stage.
        Stage 0 is the dearest, with 1.00; no split with the same pins has a cheaper dearest one.
        Stage 1 starts with 'd': a layer earlier the dearer of the two would cost 1.17, a layer later is impossible.
    """
    return "\n\n".join([_layer_table(split), _stage_table(split), "\n".join(_reasons(split))])


def _layer_table(split: Split) -> str:
    flops = sum(layer.flops for layer in split.layers)
    rows = [
        [
            layer.name,
            count_text(layer.flops),
            share_text(layer.flops / flops if flops else 0.0),
            bytes_text(layer.parameter_bytes),
            bytes_text(layer.activation_bytes),
            f"{stage} (pinned)" if layer.stage is not None else str(stage),
        ]
        for layer, stage in zip(split.layers, split.assignment, strict=True)
    ]
    return table(["layer", "FLOPs", "share", "parameters", "activations", _noun(split)], rows)


def _stage_table(split: Split) -> str:
    rows = [
        [
            str(stage),
            str(share.end - share.start),
            share_text(share.flops_share),
            str(stashed),
            bytes_text(share.bytes),
            f"{share.cost:.2f}",
        ]
        for stage, (share, stashed) in enumerate(zip(split.shares, split.stash, strict=True))
    ]
    return table([_noun(split), "layers", "FLOPs", "stashed", "bytes", "cost"], rows)


def _reasons(split: Split) -> Iterator[str]:
    noun = _noun(split)
    title = noun[0].upper() + noun[1:]
    if split.device_mapping:
        yield (
            f"Stages 0 and {len(split.device_mapping) - 1} share variables and are on one IPU: "
            f"device_mapping={list(split.device_mapping)}."
        )
    yield f"Cost is {_measure(split.memory_weight)}, in proportion to the mean {noun}.{_limit_text(split)}"
    yield f"{title} {split.bottleneck} is the dearest, with {_dearest(split):.2f}; {_least_text(split)}."
    for stage, (earlier, later) in enumerate(split.moved, start=1):
        name = split.layers[split.shares[stage].start].name
        yield f"{title} {stage} starts with '{name}': a layer earlier {_moved(earlier)}, a layer later {_moved(later)}."


def _noun(split: Split) -> str:
    return "IPU" if split.device_mapping else "stage"


def _limit_text(split: Split) -> str:
    """Returns a sentence on the limit of memory: whether it is met, and what it costs."""
    if split.memory_limit is None:
        return ""
    limit = bytes_text(split.memory_limit)
    if max(share.bytes for share in split.shares) > split.memory_limit:
        return f" No split keeps every {_noun(split)} within {limit}."
    if split.least <= split.unlimited * _ROUNDING:
        return f" Every {_noun(split)} is within {limit}."
    return f" Memory binds: without the limit of {limit} the dearest {_noun(split)} would cost {split.unlimited:.2f}."


def _least_text(split: Split) -> str:
    if _dearest(split) <= split.least * _ROUNDING:
        return "no split with the same pins has a cheaper dearest one"
    return f"{split.least:.2f} would do, but then the largest {_noun(split)} would hold more bytes"


def _dearest(split: Split) -> float:
    return split.shares[split.bottleneck].cost


def _measure(memory: float) -> str:
    if memory in (0, 1):
        return "the bytes" if memory else "the FLOPs"
    return f"{1 - memory:.0%} the FLOPs and {memory:.0%} the bytes"


def _moved(cost: float) -> str:
    """Describes the effect of moving a stage boundary, given the cost of the dearer of both stages."""
    return "is impossible" if math.isinf(cost) else f"the dearer of the two would cost {cost:.2f}"
