"""Places the results of elementwise instructions: in registers, as few as possible, and in outputs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ipu_tf.device.elementwise.slots import Instruction, Slot


def needed(instructions: Sequence[Instruction], results: Collection[Slot]) -> list[Instruction]:
    """Returns the instructions that results depend on."""
    read, found = set(results), []
    for each in reversed(instructions):
        if each.to in read or each.to.place != "register":
            read.update(each.operands)
            found.append(each)
    return found[::-1]


def outputs_placed(
    instructions: Sequence[Instruction], numbers: dict[int, Slot], in_place: dict[int, int]
) -> list[Instruction]:
    """Returns the instructions with results written to the outputs: at once, or at the end.

    Copied at the end is what is written over an input that is read after it is made, and another output of the same
    register.

    Args:
        instructions: the instructions.
        numbers: the register of each output that is no truth value.
        in_place: for outputs, the inputs that they are written over.
    """
    last_read = {slot: at for at, each in enumerate(instructions) for slot in each.operands}
    made = {each.to: at for at, each in enumerate(instructions)}
    placed: dict[Slot, Slot] = {}
    copies: list[tuple[Slot, Slot]] = []
    for index, register in numbers.items():
        replaced = Slot("input", in_place[index]) if index in in_place else None
        late = replaced is not None and last_read.get(replaced, -1) > made.get(register, -1)
        if late or register in placed or register not in made:
            copies.append((Slot("output", index), register))
        else:
            placed[register] = Slot("output", index)
    every = (*instructions, *(Instruction("copy", to, (register,)) for to, register in copies))
    return [
        Instruction(each.name, placed.get(each.to, each.to), tuple(placed.get(slot, slot) for slot in each.operands))
        for each in every
    ]


def with_registers(instructions: Sequence[Instruction]) -> tuple[tuple[Instruction, ...], int]:
    """Returns the instructions with as few registers as needed, and how many these are.

    They are the same in each process, whatever its hashes: a program that is kept on disk is found by its text.
    """
    last_read = {slot: at for at, each in enumerate(instructions) for slot in each.operands}
    real: dict[Slot, Slot] = {}
    free: list[int] = []
    count = 0
    found = []
    for at, each in enumerate(instructions):
        operands = tuple(real.get(slot, slot) for slot in each.operands)
        free += [real[slot].index for slot in dict.fromkeys(each.operands) if slot in real and last_read[slot] == at]
        to = each.to
        if to.place == "register":
            if not free:
                free.append(count)
                count += 1
            real[to] = to = Slot("register", free.pop())
        found.append(Instruction(each.name, to, operands))
    return tuple(found), count
