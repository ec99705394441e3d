"""Ctrl-C at random moments ends every kind of run soon, and leaves the model usable."""

from __future__ import annotations

import pytest

from tests.helpers.interruptions import interruptions
from tests.helpers.sigint import sigint_interrupts  # noqa: F401 - a fixture


@pytest.mark.usefixtures("sigint_interrupts")
def test_each_kind_of_run_ends_soon() -> None:
    found = interruptions(4)
    assert [one for one in found if one.seconds > 2] == []
    assert {one.kind for one in found} == {"loop", "feedless loop", "pipeline", "compile"}
