"""Groups elementwise equations that one call can compute.

Every equation has a level: at least that of what it reads, and one more where it reads, other than element by element,
what a group makes, or what is no elementwise operation:

    level 0   a = x * y        b = x + 1        c = reshape(...)      a, b: one group for each number of elements
    level 0   s = sum(a)                                              after the groups of its level
    level 1   d = a / broadcast(s)                                    cannot be in the group of a: it needs the sum

Equations of one level, which pass on elements of one number, need nothing from each other but elements. So whatever is
grouped among them, no group waits for itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ipu_tf.device.elementwise.group import Group, Operands
from ipu_tf.device.elementwise.operands import Operand
from ipu_tf.device.elementwise.views import Views
from ipu_tf.device.jaxprs.flat_equations import Equation, FlatFunction

MOST_EQUATIONS = 500
"""The most equations of a group; the kernel takes some thousand instructions, operands and results."""
Step = Group | Equation


def steps(function: FlatFunction, grouped: bool) -> list[Step]:
    """Returns a function's groups, and its other equations, in an order in which they can be evaluated.

    Args:
        function: the function.
        grouped: whether there are groups, and no views; without, all are equations.
    """
    return _Levels(function).steps() if grouped else list(function.equations)


class _Levels:
    def __init__(self, function: FlatFunction) -> None:
        self._function = function
        self._views = Views(function)
        self._equations = [each for each in function.equations if not self._views.is_view(each)]
        self._sum = [self._views.summed(each) for each in self._equations]
        self._operands: list[Operands | None] = [
            (summed,) if summed is not None else self._views.operands(each)
            for each, summed in zip(self._equations, self._sum, strict=True)
        ]
        self._maker = {number: at for at, each in enumerate(self._equations) for number in each.outputs}
        self._level: list[int] = []
        self._reads: list[tuple[int, ...]] = []  # the places of equations, by that of what reads them
        self._elements = [self._size(at) for at in range(len(self._equations))]

    def steps(self) -> list[Step]:
        self._assign()
        self._delay()
        groups = [members for members in self._connected() if self._wanted(members)]
        accepted = {members[0]: members for members in groups}
        inside = {at for members in accepted.values() for at in members}
        read = self._read_outside(accepted)
        keyed: list[tuple[tuple[int, bool, int], Step]] = []
        for at, equation in enumerate(self._equations):
            if at in accepted:
                group = self._group(accepted[at], read)
                if not group.outputs and not group.sums:
                    continue
                step: Step = group
            elif at in inside:
                continue
            else:
                step = equation
            keyed.append(((self._level[at], self._operands[at] is None, at), step))
        return [step for _, step in sorted(keyed, key=lambda each: each[0])]

    def _wanted(self, members: Sequence[int]) -> bool:
        """Returns whether these equations are a call: not sums alone, which have a kernel, nor more than it takes."""
        return len(members) <= MOST_EQUATIONS and any(self._sum[at] is None for at in members)

    def _size(self, at: int) -> int:
        summed = self._sum[at]
        if self._operands[at] is None:
            return 0
        value = summed.value if summed is not None else self._equations[at].outputs[0]
        return int(self._function.types[value].size)

    def _group(self, members: Sequence[int], read: set[int]) -> Group:
        equations = tuple(self._equations[at] for at in members)
        operands = tuple(each for at in members if (each := self._operands[at]) is not None)
        sums = tuple(self._equations[at].outputs[0] for at in members if self._sum[at] is not None)
        outputs = tuple(
            each.outputs[0] for each in equations if each.outputs[0] in read and each.outputs[0] not in sums
        )
        return Group(equations, operands, outputs, sums, self._elements[members[0]])

    def _passes_elements(self, at: int, maker: int) -> bool:
        """Returns whether two equations may be in one group: the first reads all elements of what the other makes."""
        operands = self._operands[at]
        if operands is None or self._operands[maker] is None or self._elements[at] != self._elements[maker]:
            return False
        if self._sum[maker] is not None:
            return False
        made = self._equations[maker].outputs[0]
        read = [each for each in operands if isinstance(each, Operand) and self._views.shown(each.value) == made]
        return bool(read) and all(each.is_whole and each.value == made for each in read)

    def _sources(self, at: int) -> tuple[int, ...]:
        """Returns the places of the equations that make what an equation reads."""
        operands = self._operands[at]
        if operands is not None:
            values = [each.value for each in operands if isinstance(each, Operand)]
        else:
            values = [self._views.shown(value) for value in self._equations[at].values]
        return tuple({self._maker[value] for value in map(self._views.shown, values) if value in self._maker})

    def _assign(self) -> None:
        """Gives each equation the lowest level that it can have."""
        effects = 0
        for at, equation in enumerate(self._equations):
            sources = self._sources(at)
            self._reads.append(sources)
            lowest = -1 if self._operands[at] is None and not equation.values else 0  # constants come before all groups
            level = max((self._level[maker] + self._gap(at, maker) for maker in sources), default=lowest)
            if equation.eqn.effects:
                level = effects = max(level, effects)
            self._level.append(level)

    def _gap(self, at: int, maker: int) -> int:
        """Returns how many levels an equation has to be above one that it reads."""
        return 0 if self._operands[at] is None or self._passes_elements(at, maker) else 1

    def _delay(self) -> None:
        """Moves equations up to the level of what reads them, where they need not keep more for it than they make."""
        readers: dict[int, list[int]] = defaultdict(list)
        for at, sources in enumerate(self._reads):
            for maker in sources:
                readers[maker].append(at)
        returned = {self._views.shown(atom) for atom in self._function.outputs if isinstance(atom, int)}
        for at in reversed(range(len(self._equations))):
            if self._operands[at] is None or self._equations[at].outputs[0] in returned or not readers[at]:
                continue
            highest = min(self._level[reader] - self._gap(reader, at) for reader in readers[at])
            if highest > self._level[at] and self._needs_no_more(at):
                self._level[at] = highest

    def _needs_no_more(self, at: int) -> bool:
        """Returns whether an equation reads at most as many bytes as it makes."""
        operands = self._operands[at] or ()
        values = {each.value for each in operands if isinstance(each, Operand)}
        types = self._function.types
        made = types[self._equations[at].outputs[0]]
        read = sum(types[value].size * types[value].dtype.itemsize for value in values)
        return read <= made.size * made.dtype.itemsize + _SMALL

    def _connected(self) -> list[list[int]]:
        """Returns the places of equations of one level that are connected by elements, in order."""
        parent = list(range(len(self._equations)))

        def root(at: int) -> int:
            while parent[at] != at:
                parent[at] = at = parent[parent[at]]
            return at

        for at, sources in enumerate(self._reads):
            for maker in sources:
                if self._level[at] == self._level[maker] and self._passes_elements(at, maker):
                    parent[root(at)] = root(maker)
        groups: dict[int, list[int]] = defaultdict(list)
        for at, operands in enumerate(self._operands):
            if operands is not None:
                groups[root(at)].append(at)
        return list(groups.values())

    def _read_outside(self, groups: dict[int, list[int]]) -> set[int]:
        """Returns the values that are read by an equation outside of the group that makes them, or returned."""
        group_of = {at: first for first, members in groups.items() for at in members}
        read = {self._views.shown(atom) for atom in self._function.outputs if isinstance(atom, int)}
        for at, equation in enumerate(self._equations):
            own, operands = group_of.get(at), self._operands[at] or ()
            if own is None:
                read |= {self._views.shown(value) for value in equation.values}
                continue
            for value in (each.value for each in operands if isinstance(each, Operand)):
                shown = self._views.shown(value)
                if shown != value or group_of.get(self._maker.get(value, -1)) != own:
                    read.add(shown)
        return read


_SMALL = 4096
"""Bytes that make no difference."""
