"""Clustering of a graph's ops into programs: on small graphs by hand, and by properties on random ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_tf.lowering.tensorflow.clustering import ClusterSchedule, SessionOp, schedule_clusters


def names(found: ClusterSchedule) -> list[tuple[int, int, tuple[str, ...]]]:
    return [(cluster.phase, cluster.ordinal, cluster.names) for cluster in found.clusters]


TABLE: dict[str, tuple[dict[str, SessionOp], list[tuple[int, int, tuple[str, ...]]]]] = {
    "nothing": ({}, []),
    "only the host": ({"a": SessionOp(()), "b": SessionOp(("a",))}, []),
    "one op": ({"a": SessionOp((), 0)}, [(0, 0, ("a",))]),
    "only moves": ({"a": SessionOp((), 0, computes=False)}, []),
    "moves join": (
        {"a": SessionOp((), 0, computes=False), "b": SessionOp(("a",), 0), "c": SessionOp((), 0, computes=False)},
        [(0, 0, ("a", "b", "c"))],
    ),
    "the host before does not split": (
        {"host": SessionOp(()), "a": SessionOp((), 0), "b": SessionOp(("host", "a"), 0)},
        [(0, 0, ("a", "b"))],
    ),
    "the host between splits": (
        {"a": SessionOp((), 0), "host": SessionOp(("a",)), "b": SessionOp(("host",), 0), "c": SessionOp(("a",), 0)},
        [(0, 0, ("a", "c")), (1, 0, ("b",))],
    ),
    "another device between splits": (
        {"a": SessionOp((), 0), "b": SessionOp(("a",), 1), "c": SessionOp(("b",), 0)},
        [(0, 0, ("a",)), (1, 1, ("b",)), (2, 0, ("c",))],
    ),
    "devices side by side": ({"a": SessionOp((), 0), "b": SessionOp((), 1)}, [(0, 0, ("a",)), (0, 1, ("b",))]),
    "initialisers stay": (
        {
            "value": SessionOp((), 0),
            "assign": SessionOp(("value",), 0, initialises=True),
            "use": SessionOp(("value",), 0),
        },
        [(0, 0, ("use",))],
    ),
    "a loop is one": (
        {
            "enter": SessionOp(("next",), 0, computes=False, group="loop"),
            "next": SessionOp(("enter",), 0, group="loop"),
            "unplaced": SessionOp(("enter",), None, free=True, group="loop"),
            "exit": SessionOp(("enter",), 0),
        },
        [(0, 0, ("enter", "next", "unplaced", "exit"))],
    ),
    "a loop waits for all of its inputs": (
        {
            "a": SessionOp((), 0),
            "host": SessionOp(("a",)),
            "early": SessionOp((), 0, group="loop"),
            "late": SessionOp(("host", "early"), 0, group="loop"),
        },
        [(0, 0, ("a",)), (1, 0, ("early", "late"))],
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_clusters(name: str) -> None:
    nodes, wanted = TABLE[name]
    assert names(schedule_clusters(nodes)) == wanted


def test_what_depends_on_a_program_comes_after_it_and_nothing_else_does() -> None:
    nodes = {
        "free": SessionOp(()),
        "a": SessionOp((), 0),
        "b": SessionOp(("a", "free")),
        "c": SessionOp(("b",), 0),
        "d": SessionOp(("c",)),
        "e": SessionOp(("free",)),
    }
    assert schedule_clusters(nodes).dependents == {1: ("b",), 2: ("d",)}


def test_a_host_loop_that_reads_a_result_is_copied_as_a_whole() -> None:
    nodes = {"a": SessionOp((), 0), "b": SessionOp((), group="loop"), "c": SessionOp(("a", "b"), group="loop")}
    assert schedule_clusters(nodes).dependents == {1: ("b", "c")}


def test_a_loop_in_two_places() -> None:
    nodes = {"a": SessionOp((), 0, group="loop"), "b": SessionOp(("a",), 1, group="loop")}
    with pytest.raises(
        ValueError, match="`loop` are placed on different devices: /device:IPU:0 and, `b`, /device:IPU:1"
    ):
        schedule_clusters(nodes)


def test_ops_that_wait_for_each_other() -> None:
    with pytest.raises(ValueError, match="wait for each other, and no loop is around them: a, b"):
        schedule_clusters({"a": SessionOp(("b",)), "b": SessionOp(("a",), 0)})


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, SessionOp]:
    """Graphs of up to 14 ops on the host and two IPUs."""
    count = draw(st.integers(1, 14))
    nodes = {}
    for index in range(count):
        before = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        ordinal = draw(st.sampled_from([None, 0, 0, 1]))
        nodes[f"op{index}"] = SessionOp(
            tuple(f"op{i}" for i in sorted(before)),
            ordinal,
            computes=draw(st.booleans()),
            initialises=draw(st.integers(0, 9)) == 0,
        )
    return nodes


@given(graphs())
def test_every_op_finds_what_it_waits_for(nodes: dict[str, SessionOp]) -> None:
    found = schedule_clusters(nodes)
    inside = [name for cluster in found.clusters for name in cluster.names]
    dependents = [name for group in found.dependents.values() for name in group]
    assert len(set(inside) | set(dependents)) == len(inside) + len(dependents)
    done = {name for name in nodes if name not in inside and name not in dependents}
    assert all(before in done for name in done for before in nodes[name].before), "the host does not wait for a program"
    last = max([c.phase for c in found.clusters] + list(found.dependents), default=-1)
    for phase in range(last + 1):
        done |= set(found.dependents.get(phase, ()))
        assert all(set(nodes[name].before) <= done for name in found.dependents.get(phase, ()))
        for cluster in (c for c in found.clusters if c.phase == phase):
            for name in cluster.names:
                assert set(nodes[name].before) <= done | set(cluster.names)
        done |= {name for c in found.clusters if c.phase == phase for name in c.names}
    assert done == set(nodes)


@given(graphs())
def test_what_computes_on_an_ipu_is_in_a_program_of_that_ipu(nodes: dict[str, SessionOp]) -> None:
    initial: set[str] = set()
    for name, node in reversed(nodes.items()):
        if node.initialises or name in initial:
            initial |= {name, *node.before}
    homes = {name: cluster.ordinal for cluster in schedule_clusters(nodes).clusters for name in cluster.names}
    for name, node in nodes.items():
        if node.ordinal is not None and node.computes and name not in initial:
            assert homes[name] == node.ordinal
        elif node.ordinal is None or name in initial:
            assert name not in homes


@given(graphs())
def test_without_a_host_op_between_each_ipu_has_one_program(nodes: dict[str, SessionOp]) -> None:
    single = {
        n: SessionOp(node.before, 0, node.free, node.computes) for n, node in nodes.items() if node.ordinal is not None
    }
    assert len(schedule_clusters(single).clusters) == int(any(node.computes for node in single.values()))
