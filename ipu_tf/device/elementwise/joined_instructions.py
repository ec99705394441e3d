"""Joins instructions of the elementwise kernel: two or three that pass on a result become one.

t = x * s         r = mul_add(x, s, b)
r = t + b    -->
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

from ipu_tf.device.elementwise.instructions import (
    BOUNDED,
    COMPARISONS,
    FIRST,
    INSIDE,
    LOAD,
    QUOTIENT,
    ROOT,
    STORE,
    SUM,
    SUM_PRODUCTS,
)
from ipu_tf.device.elementwise.slots import Instruction, Slot


def joined(instructions: Sequence[Instruction], results: Collection[Slot]) -> list[Instruction]:
    """Returns instructions that compute the same bits, some of them joined.

    Args:
        instructions: each register is written once.
        results: registers that are needed after the last instruction.
    """
    reads = Counter(slot for each in instructions for slot in each.operands) + Counter(results)
    made: dict[Slot, Instruction] = {}
    gone: set[Slot] = set()
    found: list[Instruction] = []

    def producer(slot: Slot) -> Instruction | None:
        """Returns what makes a register that is read once."""
        return made.get(slot) if slot.place == "register" and reads[slot] == 1 else None

    for each in instructions:
        for rule in _RULES:
            new = rule(each, producer)
            if new is not None:
                gone.update(_left_out(each, new, producer))
                each = new  # noqa: PLW2901
        made[each.to] = each
        found.append(each)
    return [each for each in found if each.to not in gone]


Producer = Callable[[Slot], Instruction | None]
Rule = Callable[[Instruction, Producer], Instruction | None]


def _left_out(each: Instruction, new: Instruction, producer: Producer) -> Iterator[Slot]:
    """Yields the registers that nothing reads any more where an instruction becomes another one."""
    for slot in each.operands:
        made = producer(slot)
        if made is not None and slot not in new.operands:
            yield slot
            yield from _left_out(made, new, producer)


def _second(each: Instruction, producer: Producer) -> Instruction | None:
    """Joins a sum, a difference or a product with one that it reads."""
    name, _, form = each.name.rpartition("_")
    if name not in ("add", "sub", "mul") or form not in ("vv", "vs", "sv"):
        return None
    for place, kind in enumerate(form):
        made = producer(each.operands[place]) if kind == "v" else None
        if made is not None and made.name in FIRST:
            second = "from" if name == "sub" and place == 1 else name
            other = each.operands[1 - place]
            return Instruction(f"{made.name}_{second}_{form[1 - place]}", each.to, (*made.operands, other))
    return None


def _quotient(each: Instruction, producer: Producer) -> Instruction | None:
    made = producer(each.operands[0]) if each.name == "div_vv" else None
    if made is None or made.name != "mul_vs":
        return None
    return Instruction(QUOTIENT, each.to, (*made.operands, each.operands[1]))


def _root(each: Instruction, producer: Producer) -> Instruction | None:
    made = producer(each.operands[0]) if each.name == "add_vs" else None
    return (
        None if made is None or made.name != "sqrt" else Instruction(ROOT, each.to, (*made.operands, each.operands[1]))
    )


def _bounded(each: Instruction, producer: Producer) -> Instruction | None:
    made = producer(each.operands[0]) if each.name == "min_vs" else None
    if made is None or made.name != "max_vs":
        return None
    return Instruction(BOUNDED, each.to, (*made.operands, each.operands[1]))


def _stored(each: Instruction, producer: Producer) -> Instruction | None:
    """Joins a comparison, or two of one operand, with the store of its truth values."""
    made = producer(each.operands[0]) if each.name == STORE else None
    if made is None:
        return None
    if made.name[:2] in COMPARISONS:
        return dataclasses.replace(made, name=f"{made.name}_store", to=each.to)
    sides = [producer(slot) for slot in made.operands] if made.name == "and" else []
    bounds = {side.name: side for side in sides if side is not None}
    if bounds.keys() != {"gt_vs", "lt_vs"} or bounds["gt_vs"].operands[0] != bounds["lt_vs"].operands[0]:
        return None
    low, high = bounds["gt_vs"].operands[1], bounds["lt_vs"].operands[1]
    return Instruction(INSIDE, each.to, (bounds["gt_vs"].operands[0], low, high))


def _select_bytes(each: Instruction, producer: Producer) -> Instruction | None:
    made = producer(each.operands[0]) if each.name.startswith("select_") else None
    if made is None or made.name != LOAD:
        return None
    return Instruction(f"load_{each.name}", each.to, (*made.operands, *each.operands[1:]))


def _sum_of_products(each: Instruction, producer: Producer) -> Instruction | None:
    made = producer(each.operands[0]) if each.name == SUM else None
    if made is None or made.name not in ("mul_vv", "square"):
        return None
    return Instruction(SUM_PRODUCTS, each.to, (made.operands[0], made.operands[-1]))


_RULES: tuple[Rule, ...] = (_second, _quotient, _root, _bounded, _stored, _select_bytes, _sum_of_products)
