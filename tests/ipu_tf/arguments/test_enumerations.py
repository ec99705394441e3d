"""Enumerations print as they did for Graphcore's users, under a Python older than 3.11."""

from __future__ import annotations

import enum
import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import ipu_tf
import keras_ipu
from ipu_tf.ops.pipelining_ops import PipelineSchedule
from ipu_tf.poplar.enumeration import ProtoEnum
from tests.helpers.keras_2_modules import lacks_keras_2

LEFT_OUT = ("__main__", "popef", "pva", "_kernels")
"""Modules that run something, or refuse to be imported; the last is a C library, present where it was built."""


def subclasses(kind: type[enum.IntEnum]) -> Iterator[type[enum.IntEnum]]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def enumerations() -> list[type[enum.IntEnum]]:
    """Every enumeration of ints in the two packages that has members."""
    for package in (ipu_tf, keras_ipu):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.rpartition(".")[2] not in LEFT_OUT and not lacks_keras_2(module.name):
                importlib.import_module(module.name)
    ours = [each for each in subclasses(enum.IntEnum) if each.__module__.split(".")[0] in ("ipu_tf", "keras_ipu")]
    return [each for each in ours if len(each)]


def test_a_schedule_is_split_at_the_dot() -> None:
    assert str(PipelineSchedule.Grouped).split(".")[1] == "Grouped"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_members_of_all_int_enumerations_print_by_name() -> None:
    found = enumerations()
    assert len(found) > 10
    for kind in found:
        for member in kind:
            # In protocol buffers a member is the number itself.
            named = str(int(member)) if issubclass(kind, ProtoEnum) else f"{kind.__name__}.{member.name}"
            assert str(member) == named
            assert f"{member}" == str(int(member))
