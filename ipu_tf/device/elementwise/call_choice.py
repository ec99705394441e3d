"""Chooses whether the groups of elementwise operations of a program are calls of the native kernel, or XLA's."""

from __future__ import annotations

from collections.abc import Sequence

from jax.extend import core

from ipu_tf.device.convolution import onednn
from ipu_tf.device.convolution.native import library
from ipu_tf.device.convolution.native.row_product import is_row_product
from ipu_tf.device.elementwise.group import Group
from ipu_tf.device.elementwise.grouping import Step
from ipu_tf.device.jaxprs.flat_equations import Equation

DISTINCT = 80
"""The fewest groups that differ in more than their place, from which on the groups of any program are calls."""
GROUPS = 80
"""The fewest groups, from which on those of a program with few convolutions, or large groups, are calls.

With fewer, XLA has compiled them before anybody waits, and joins them with what is around them. A transformer's step
takes 240 ms by XLA, and 165 with calls.
"""
GROUPS_PER_CONVOLUTION = 20
"""The fewest groups per convolution of a program with few of them: ResNet-20 has 4, a vision transformer hundreds."""
LARGE = 2**18
"""The fewest elements of a group, on the average, for calls beside convolutions.

XLA's code is faster for smaller ones. On two cores (AMD Zen 5, 27 November 2026) ResNet-20's step, of 152 groups of 120
thousand elements, takes 25.7 ms, and 27.8 with calls; that of a depthwise network, of 97 groups of 300 thousand, 25.1
and 22.2.
"""
SMALL = 4096
"""The fewest elements of a group, on the average, for calls beside products of few rows, as of a text's next token.

A call takes 5 us and small arrays less: GPT-2's 214 groups of 768 elements take 1.1 ms a token as calls, 0.2 by XLA.
"""
_HANDLERS = (library.DENSE_CONVOLUTION, library.DEPTHWISE_CONVOLUTION, onednn.TARGET)


def calls_pay(grouped: Sequence[Step]) -> bool:
    """Returns whether calls are faster, to compile or to run."""
    groups = [each for each in grouped if isinstance(each, Group)]
    others = [each.eqn for each in grouped if isinstance(each, Equation)]
    elements = sum(each.elements for each in groups)
    if any(map(is_row_product, others)) and elements < SMALL * len(groups):
        return False
    if len({each.kind() for each in groups}) >= DISTINCT:
        return True
    convolutions = sum(map(_is_convolution, others))
    few = len(groups) >= GROUPS_PER_CONVOLUTION * convolutions
    return len(groups) >= GROUPS and (few or elements >= LARGE * len(groups))


def _is_convolution(eqn: core.JaxprEqn) -> bool:
    called = str(eqn.params.get("target_name", ""))
    return eqn.primitive.name == "conv_general_dilated" or called.startswith(_HANDLERS)
