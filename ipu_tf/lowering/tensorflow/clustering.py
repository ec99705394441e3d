"""Clusters ops of a session graph into device programs, and orders them with host ops.

    phase 0:   host ops ──► program of IPU 0, program of IPU 1
    phase 1:   host ops that read these programs' results ──► programs ...

All ops of one IPU in one phase are one program. A phase ends only where it must: where a host op, or another IPU,
lies between two ops of the same IPU.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping


@dataclasses.dataclass(frozen=True)
class SessionOp:
    """Op of a session run, as clustering sees it.

    Attributes:
        before: names of the ops that run before it. Names of ops that are not among the nodes have no meaning.
        ordinal: of the IPU it is placed on; None for an op of the host.
        free: whether an op without an IPU goes where the rest of its group is; it is on the host by itself.
        computes: whether it makes a program worth while. One that only passes data on joins programs of other ops,
            and stays on the host where there is none.
        initialises: whether it gives a variable its first value: it, and all it depends on, stays on the host.
        group: ops with the same one, if any, belong into the same place and phase: those of a loop, say.
    """

    before: tuple[str, ...]
    ordinal: int | None = None
    free: bool = False
    computes: bool = True
    initialises: bool = False
    group: str | None = None


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Ops that become one device program.

    Attributes:
        ordinal: of the IPU.
        phase: programs of later phases may depend on it.
        names: of the ops, in the order they were given.
    """

    ordinal: int
    phase: int
    names: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ClusterSchedule:
    """Cluster schedule of a session run: programs and host ops in order.

    Attributes:
        clusters: the programs, in an order in which they can run.
        dependents: host ops that depend on a program, by their phase: those of phase n run after every program that
            precedes phase n, and before those of phase n.
    """

    clusters: tuple[Cluster, ...] = ()
    dependents: Mapping[int, tuple[str, ...]] = dataclasses.field(default_factory=dict)


class MisplacedOp(ValueError):
    """Raised if ops cannot be clustered because of the device of one of them, or of its dependencies.

    Attributes:
        op: the name of the op.
    """

    def __init__(self, op: str, message: str) -> None:
        self.op = op
        super().__init__(message)


def schedule_clusters(nodes: Mapping[str, SessionOp]) -> ClusterSchedule:
    """Clusters ops into programs and orders them.

    Args:
        nodes: the ops by name.

    Raises:
        MisplacedOp: if the ops of a group lie in different places, or ops wait for each other outside of groups.

    Example:
        >>> nodes = {"feed": SessionOp(()), "add": SessionOp(("feed",), 0), "print": SessionOp(("add",))}
        >>> nodes["mul"] = SessionOp(("add",), 0)
        >>> found = schedule_clusters(nodes)
        >>> [cluster.names for cluster in found.clusters], dict(found.dependents)
        ([('add', 'mul')], {1: ('print',)})
    """
    units = {name: node.group if node.group is not None else name for name, node in nodes.items()}
    on_host = _ancestors(nodes, (name for name, node in nodes.items() if node.initialises))
    places = {name: None if name in on_host else node.ordinal for name, node in nodes.items()}
    homes = _homes(nodes, units, places)
    order = _in_order(_edges(nodes, units), units)
    phases = _phases(order, homes)
    members: dict[tuple[int, int], list[str]] = collections.defaultdict(list)
    for name in nodes:
        home = homes[units[name]]
        if home is not None:
            members[phases[units[name]], home].append(name)
    worth = {key: names for key, names in members.items() if any(nodes[name].computes for name in names)}
    clusters = tuple(Cluster(ordinal, phase, tuple(names)) for (phase, ordinal), names in sorted(worth.items()))
    inside = {name for cluster in clusters for name in cluster.names}
    return ClusterSchedule(clusters, _dependents(nodes, units, order, phases, inside))


def _ancestors(nodes: Mapping[str, SessionOp], names: Iterable[str]) -> set[str]:
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in nodes and name not in found:
            found.add(name)
            waiting += nodes[name].before
    return found


def _homes(
    nodes: Mapping[str, SessionOp], units: Mapping[str, str], places: Mapping[str, int | None]
) -> dict[str, int | None]:
    """Returns the device of each unit: an op, or a control-flow group."""
    homes: dict[str, int | None] = {}
    settled = [name for name in places if not (nodes[name].free and places[name] is None)]
    for name in settled:
        unit, place = units[name], places[name]
        if homes.setdefault(unit, place) != place:
            raise MisplacedOp(
                name,
                f"The ops of the loop or branch `{unit}` are placed on different devices: {_device_name(homes[unit])} "
                f"and, `{name}`, {_device_name(place)}. Place all of them on one.",
            )
    return {unit: homes.get(unit) for unit in units.values()}


def _device_name(place: int | None) -> str:
    return "the host" if place is None else f"/device:IPU:{place}"


def _edges(nodes: Mapping[str, SessionOp], units: Mapping[str, str]) -> dict[str, dict[str, None]]:
    """Returns the dependencies of each unit."""
    edges: dict[str, dict[str, None]] = {unit: {} for unit in units.values()}
    for name, node in nodes.items():
        own = units[name]
        edges[own].update((units[before], None) for before in node.before if before in units and units[before] != own)
    return edges


def _in_order(edges: Mapping[str, Mapping[str, None]], units: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Sorts units topologically."""
    waiting = {unit: len(before) for unit, before in edges.items()}
    after: dict[str, list[str]] = collections.defaultdict(list)
    for unit, before in edges.items():
        for earlier in before:
            after[earlier].append(unit)
    ready = collections.deque(unit for unit, count in waiting.items() if not count)
    order: dict[str, tuple[str, ...]] = {}
    while ready:
        unit = ready.popleft()
        order[unit] = tuple(edges[unit])
        for later in after[unit]:
            waiting[later] -= 1
            if not waiting[later]:
                ready.append(later)
    if len(order) < len(edges):
        stuck = sorted(set(edges) - set(order))
        text = f"Some ops wait for each other, and no loop is around them: {', '.join(stuck[:4])}."
        raise MisplacedOp(next((name for name, unit in units.items() if unit in stuck), ""), text)
    return order


def _phases(order: Mapping[str, tuple[str, ...]], homes: Mapping[str, int | None]) -> dict[str, int]:
    phases: dict[str, int] = {}
    for unit, before in order.items():
        phases[unit] = max((phases[b] + _ends_program(homes[b], homes[unit]) for b in before), default=0)
    return phases


def _ends_program(before: int | None, after: int | None) -> int:
    """Returns 1 if a program ends between two devices: results leave an IPU only after its program."""
    return int(before is not None and before != after)


def _dependents(
    nodes: Mapping[str, SessionOp],
    units: Mapping[str, str],
    order: Mapping[str, tuple[str, ...]],
    phases: Mapping[str, int],
    inside: set[str],
) -> dict[int, tuple[str, ...]]:
    running = {units[name] for name in inside}
    depend: set[str] = set()
    for unit, before in order.items():
        if unit not in running and any(b in running or b in depend for b in before):
            depend.add(unit)
    found: dict[int, list[str]] = collections.defaultdict(list)
    for name in _by_unit(nodes, units, depend):
        found[phases[units[name]]].append(name)
    return {phase: tuple(names) for phase, names in sorted(found.items())}


def _by_unit(nodes: Mapping[str, SessionOp], units: Mapping[str, str], wanted: set[str]) -> Iterator[str]:
    return (name for name in nodes if units[name] in wanted)
