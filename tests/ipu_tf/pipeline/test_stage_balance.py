"""Layer partition into stages: as good as trying every partition, and explained."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_tf.pipeline import LayerCosts, PipelineShape, Split, SplitError, grouped, peak_stash, split_layers, split_text


def layers_of(*flops: float, pinned: dict[int, int] | None = None) -> list[LayerCosts]:
    """Layers `a`, `b`, ... with operations and no bytes."""
    return [LayerCosts(chr(97 + n), cost, stage=(pinned or {}).get(n)) for n, cost in enumerate(flops)]


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[LayerCosts], int, list[int], float, int | None]:
    """(layers, stages, stash, weight of memory, limit of memory) of up to 8 layers and 4 stages."""
    sizes = st.integers(0, 9)
    costs = draw(st.lists(st.tuples(sizes, sizes, sizes), min_size=1, max_size=8))
    stages = draw(st.integers(1, min(4, len(costs))))
    pin = st.one_of(st.none(), st.none(), st.none(), st.integers(0, stages - 1))
    layers = [LayerCosts(f"layer{n}", *cost, stage=draw(pin)) for n, cost in enumerate(costs)]
    stash = draw(st.lists(st.integers(1, 7), min_size=stages, max_size=stages))
    return layers, stages, stash, draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])), draw(st.none() | st.integers(5, 90))


def tried(
    layers: list[LayerCosts], stages: int, stash: list[int], weight: float, limit: int | None
) -> list[list[float]]:
    """The stages' costs in every allowed split, written from the definition."""
    all_flops = sum(layer.flops for layer in layers)
    mean_bytes = sum(layer.parameter_bytes + layer.activation_bytes * sum(stash) / stages for layer in layers) / stages
    if not mean_bytes:
        weight = 0.0
    elif not all_flops:
        weight = 1.0
    found = []
    for cuts in itertools.combinations(range(1, len(layers)), stages - 1):
        costs = []
        for stage, (start, end) in enumerate(itertools.pairwise((0, *cuts, len(layers)))):
            part = layers[start:end]
            size = sum(layer.parameter_bytes + stash[stage] * layer.activation_bytes for layer in part)
            if any(layer.stage not in (None, stage) for layer in part) or (limit is not None and size > limit):
                break
            flops = sum(layer.flops for layer in part)
            cost = (1 - weight) * flops * stages / all_flops if all_flops else 0.0
            costs.append(cost + (weight * size / mean_bytes if mean_bytes else 0.0))
        else:
            found.append(costs)
    return found


@given(problems())
def test_no_split_is_better(problem: tuple[list[LayerCosts], int, list[int], float, int | None]) -> None:
    layers, stages, stash, weight, limit = problem
    every = tried(*problem)
    if not every:
        with pytest.raises(SplitError):
            split_layers(layers, stages, weight, stash, limit)
        return
    split = split_layers(layers, stages, weight, stash, limit)
    costs = [share.cost for share in split.shares]
    dearest = min(max(some) for some in every)
    assert max(costs) == pytest.approx(dearest)
    spread = min(sum(cost**2 for cost in some) for some in every if max(some) <= dearest * (1 + 1e-12))
    assert sum(cost**2 for cost in costs) == pytest.approx(spread)
    assert any(costs == pytest.approx(some) for some in every)
    assert list(split.assignment) == sorted(split.assignment)
    assert set(split.assignment) == set(range(stages))
    assert all(layer.stage in (None, stage) for layer, stage in zip(layers, split.assignment, strict=True))
    assert math.isclose(sum(share.flops_share for share in split.shares), 1.0) or not any(x.flops for x in layers)


@given(problems())
def test_time_comes_first_and_then_bytes(problem: tuple[list[LayerCosts], int, list[int], float, int | None]) -> None:
    layers, stages, stash, _, limit = problem
    if not (every := tried(layers, stages, stash, 0.0, limit)):
        with pytest.raises(SplitError):
            split_layers(layers, stages, None, stash, limit)
        return
    split = split_layers(layers, stages, None, stash, limit)
    costs = [share.cost for share in split.shares]
    assert split.least == pytest.approx(min(max(some) for some in every))
    assert split.unlimited == pytest.approx(min(max(some) for some in tried(layers, stages, stash, 0.0, None)))
    assert any(costs == pytest.approx(some) for some in every)
    by_time = split_layers(layers, stages, 0.0, stash, limit)
    if any(layer.flops for layer in layers):
        assert max(costs) <= split.least * 1.05 * (1 + 1e-9)
    assert max(share.bytes for share in split.shares) <= max(share.bytes for share in by_time.shares)
    assert limit is None or max(share.bytes for share in split.shares) <= limit


def test_of_splits_that_take_as_long_the_one_with_fewer_bytes_is_taken() -> None:
    layers = [LayerCosts("a", 50.0, 100), LayerCosts("b", 1.0, 900), LayerCosts("c", 50.0, 800)]
    assert split_layers(layers, 2).assignment == (0, 0, 1)
    layers[0], layers[2] = LayerCosts("a", 50.0, 800), LayerCosts("c", 50.0, 100)
    assert split_layers(layers, 2).assignment == (0, 1, 1)
    layers[1] = LayerCosts("b", 9.0, 900)
    assert split_layers([*layers, LayerCosts("d", 9.0)], 2).assignment == (0, 0, 1, 1)
    layers = [LayerCosts("a", 50.0, 800), LayerCosts("b", 1.0, 900), LayerCosts("c", 51.0, 100)]
    slower = split_layers(layers, 2)
    assert slower.assignment == (0, 1, 1)
    assert "with 1.02; 1.00 would do, but then the largest stage would hold more bytes." in split_text(slower)


@pytest.mark.parametrize(
    ("flops", "pinned", "stages", "wanted"),
    [
        ((1, 1, 1, 1), {}, 2, (0, 0, 1, 1)),
        ((1, 1, 1, 9), {}, 2, (0, 0, 0, 1)),
        ((3, 3, 3, 3, 3), {}, 5, (0, 1, 2, 3, 4)),
        # Between splits whose dearest stage is the 9, the others are made alike.
        ((9, 1, 1, 1, 1), {}, 3, (0, 1, 1, 2, 2)),
        # Wildcards: a pinned layer takes its neighbours along where it must.
        ((1, 1, 1, 9), {2: 1}, 2, (0, 0, 1, 1)),
        ((1, 1, 1, 1, 1, 1), {1: 0, 2: 1}, 2, (0, 0, 1, 1, 1, 1)),
        ((1, 1, 1, 1, 1, 1), {3: 0}, 3, (0, 0, 0, 0, 1, 2)),
        ((1, 2), {}, 1, (0, 0)),
    ],
)
def test_small_splits(flops: tuple[float, ...], pinned: dict[int, int], stages: int, wanted: tuple[int, ...]) -> None:
    assert split_layers(layers_of(*flops, pinned=pinned), stages).assignment == wanted


def test_early_stages_pay_for_what_they_stash() -> None:
    """Layers alike: by operations in halves; by memory the first stage, which stashes more, gets fewer."""
    layers = [LayerCosts(f"{n}", 1.0, parameter_bytes=0, activation_bytes=10) for n in range(8)]
    stashed = peak_stash(grouped(PipelineShape(2), 4))
    assert stashed == (3, 1)
    assert split_layers(layers, 2, memory_weight=0.0, stash=stashed).assignment.count(0) == 4
    by_memory = split_layers(layers, 2, memory_weight=1.0, stash=stashed)
    assert by_memory.assignment.count(0) == 2
    assert [share.bytes for share in by_memory.shares] == [60, 60]


def test_a_limit_of_memory_moves_boundaries() -> None:
    layers = [LayerCosts("a", 1.0, 60), LayerCosts("b", 1.0, 60), LayerCosts("c", 8.0, 10)]
    assert split_layers(layers, 2, memory_weight=0.0).assignment == (0, 0, 1)
    assert split_layers(layers, 2, memory_weight=0.0, memory_limit=100).assignment == (0, 1, 1)


def test_a_split_says_whether_memory_binds() -> None:
    layers = [LayerCosts("a", 1.0, 60), LayerCosts("b", 1.0, 60), LayerCosts("c", 8.0, 10)]
    assert "Every stage is within 200 B." in split_text(split_layers(layers, 2, memory_limit=200))
    bound = split_text(split_layers(layers, 2, memory_limit=100))
    assert "Memory binds: without the limit of 100 B the dearest stage would cost 1.60." in bound


@pytest.mark.parametrize(
    ("layers", "stages", "limit", "text"),
    [
        (layers_of(1), 2, None, "2 stages need at least as many layers, and at least 1. Received: 1 layers."),
        (layers_of(), 0, None, "0 stages need at least as many layers, and at least 1. Received: 0 layers."),
        (layers_of(1, 1, pinned={1: 2}), 2, None, "Layer 'b' is pinned to stage 2 of 2 stages."),
        (
            layers_of(1, 1, 1, pinned={0: 1, 2: 0}),
            2,
            None,
            "Between the start and layer 'a' in stage 1 every stage needs a layer: 1 are needed there, and there "
            "are 0.",
        ),
        (
            layers_of(1, 1, 1, pinned={1: 1, 2: 0}),
            2,
            None,
            "Stages cannot decrease along the layers, but layer 'c' in stage 0 comes after layer 'b' in stage 1.",
        ),
        (
            layers_of(1, 1, 1, 1, pinned={1: 0, 2: 2}),
            3,
            None,
            "Between layer 'b' in stage 0 and layer 'c' in stage 2 every stage needs a layer: 1 are needed there, and "
            "there are 0.",
        ),
        (
            layers_of(1, 1, 1, pinned={2: 0}),
            2,
            None,
            "Between layer 'c' in stage 0 and the end every stage needs a layer: 1 are needed there, and there are 0.",
        ),
        (
            [LayerCosts("a", 1.0, 10), LayerCosts("b", 1.0, 50)],
            2,
            49,
            "Layer 'b' alone needs 50 bytes, and memory_limit is 49 bytes.",
        ),
        (
            [LayerCosts(name, 1.0, 10) for name in "abcde"],
            2,
            20,
            "No split into 2 stages keeps each within the memory_limit of 20 bytes. Allow more, use more stages, or "
            "stash less (recomputation, another schedule).",
        ),
    ],
)
def test_no_split_is_possible(layers: list[LayerCosts], stages: int, limit: int | None, text: str) -> None:
    with pytest.raises(SplitError) as raised:
        split_layers(layers, stages, memory_limit=limit)
    assert str(raised.value) == text


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="memory_weight must be from 0 to 1. Received: 1.5."):
        split_layers(layers_of(1, 1), 2, memory_weight=1.5)
    with pytest.raises(ValueError, match="stash must have an entry for each of the 2 stages. Received: 1."):
        split_layers(layers_of(1, 1), 2, stash=[1])


def explained() -> Split:
    """Four layers, one pinned."""
    layers = [
        LayerCosts("embed", 1e6, 4 << 20, 1 << 10),
        LayerCosts("block", 6e6, 1 << 20, 1 << 20),
        LayerCosts("norm", 1e6, 0, 1 << 20),
        LayerCosts("head", 4e6, 1 << 20, 1 << 10, stage=1),
    ]
    return split_layers(layers, 2, memory_weight=0.25, stash=(3, 1))


def test_a_split_explains_itself() -> None:
    text = split_text(explained())
    table, stages, why = text.split("\n\n")
    assert [line.split() for line in table.splitlines()][1:] == [
        ["embed", "1.0", "M", "8.3%", "4.0", "MiB", "1.0", "KiB", "0"],
        ["block", "6.0", "M", "50.0%", "1.0", "MiB", "1.0", "MiB", "0"],
        ["norm", "1.0", "M", "8.3%", "0", "B", "1.0", "MiB", "1"],
        ["head", "4.0", "M", "33.3%", "1.0", "MiB", "1.0", "KiB", "1", "(pinned)"],
    ]
    assert stages.splitlines()[0].split() == ["stage", "layers", "FLOPs", "stashed", "bytes", "cost"]
    assert stages.splitlines()[1].split()[:4] == ["0", "2", "58.3%", "3"]
    first, worst, boundary = why.splitlines()
    assert first == "Cost is 75% the FLOPs and 25% the bytes, in proportion to the mean stage."
    split = explained()
    assert worst == (
        f"Stage 0 is the dearest, with {split.shares[0].cost:.2f}; no split with the same pins has a cheaper "
        "dearest one."
    )
    earlier, later = split.moved[0]
    assert boundary == (
        f"Stage 1 starts with 'norm': a layer earlier the dearer of the two would cost {earlier:.2f}, "
        f"a layer later the dearer of the two would cost {later:.2f}."
    )
    assert min(earlier, later) >= max(share.cost for share in split.shares)


def test_boundaries_that_cannot_move() -> None:
    split = split_layers(layers_of(1, 1, pinned={0: 0}), 2)
    assert split.moved == ((math.inf, math.inf),)
    assert "a layer earlier is impossible, a layer later is impossible." in split_text(split)
    by_bytes = split_layers([LayerCosts("a", 0.0, 4), LayerCosts("b", 0.0, 4)], 2)
    assert "Cost is the bytes, in proportion" in split_text(by_bytes)
