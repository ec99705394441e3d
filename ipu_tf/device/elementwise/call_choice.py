"""Chooses whether the groups of elementwise operations of a program are calls of the native kernel, or XLA's."""

from __future__ import annotations

from collections.abc import Sequence

from ipu_tf.device.convolution.native.row_product import is_row_product
from ipu_tf.device.elementwise.group import Group
from ipu_tf.device.elementwise.grouping import Step
from ipu_tf.device.jaxprs.flat_equations import Equation

DISTINCT = 100
"""The fewest groups that differ in more than their place, from which on the groups of any program are calls."""
GROUPS = 100
"""The fewest groups, from which on those of a program with few convolutions are calls.

With fewer, XLA has compiled them before anybody waits, and joins them with what is around them. The code that it makes
beside convolutions is fast: ResNet-20's step takes 53 ms, 60 with calls. A transformer's takes 240, and 165 with calls.
"""
_GROUPS_PER_CONVOLUTION = 20
"""The fewest groups per convolution of a program with few of them: ResNet-20 has 7, a vision transformer hundreds."""
SMALL = 4096
"""The fewest elements of a group, on the average, for calls beside products of few rows, as of a text's next token.

A call takes 5 us and small arrays less: GPT-2's 214 groups of 768 elements take 1.1 ms a token as calls, 0.2 by XLA.
"""


def calls_pay(grouped: Sequence[Step]) -> bool:
    """Returns whether calls are faster, to compile or to run."""
    groups = [each for each in grouped if isinstance(each, Group)]
    few_rows = any(isinstance(each, Equation) and is_row_product(each.eqn) for each in grouped)
    if few_rows and sum(each.elements for each in groups) < SMALL * len(groups):
        return False
    if len({each.kind() for each in groups}) >= DISTINCT:
        return True
    convolutions = sum(isinstance(each, Equation) and each.name == "conv_general_dilated" for each in grouped)
    return len(groups) >= max(GROUPS, _GROUPS_PER_CONVOLUTION * convolutions)
