"""SUPPORTED.md matches the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

import ipu_tf._supported.entry as supported_entry
from ipu_tf import supported
from ipu_tf._supported.entry import Status, examine, ignored_parameters
from ipu_tf._supported.keras_names import KERAS_NAMES
from ipu_tf._supported.signature import differences
from ipu_tf._supported.tensorflow_names import TENSORFLOW_NAMES
from ipu_tf.emulation import EmulationError
from keras_ipu.options.options_page import main, options_page

ROOT = Path(__file__).resolve().parents[2]


def test_the_file_is_up_to_date() -> None:
    # In a process of its own: it makes Graphcore's names importable.
    ran = subprocess.run(
        [sys.executable, "-m", "ipu_tf.supported", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr[-2000:]


def test_the_page_of_options_is_up_to_date() -> None:
    assert (ROOT / "docs" / "options.md").read_text() == options_page()


def test_the_page_of_options_is_written(tmp_path: Path) -> None:
    assert main([str(tmp_path / "options.md")]) == 0
    assert (tmp_path / "options.md").read_text() == options_page()


def test_check_tells_another_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.md"
    monkeypatch.setattr(supported, "report", lambda: "text\n")
    assert supported.main([str(file), "--check"]) == 1
    assert "Run: python -m ipu_tf.supported" in capsys.readouterr().err
    assert supported.main([str(file)]) == 0
    assert supported.main([str(file), "--check"]) == 0
    file.write_text("other\n")
    assert supported.main([str(file), "--check"]) == 1


def test_no_name_is_listed_twice() -> None:
    tables = {**TENSORFLOW_NAMES, **KERAS_NAMES}
    assert len(tables) == len(TENSORFLOW_NAMES) + len(KERAS_NAMES)
    for names in tables.values():
        assert len(set(names)) == len(names)


SIGNATURES: list[tuple[str, Any, tuple[str, ...]]] = [
    ("x, name=None", lambda x, name=None: x, ()),
    ("x, name=None", lambda x, name=None, more=1: x, ()),
    ("x, name=None", lambda *args: args, ("lacks `x`", "lacks `name`")),
    ("x, name=None", lambda x, **kwargs: x, ()),
    ("x, y", lambda y, x: x, ("`x` has another place", "`y` has another place")),
    ("x, y=[1]", lambda x, y=(1,): x, ()),
    ("x, y=1", lambda x, y=2: x, ("`y` defaults to 2, not to 1",)),
    ("x, y=1", lambda x, y: x, ("wants `y`",)),
    ("x, y=Mode.ALL", lambda x, y=None: x, ()),
    ("x", lambda x, more: x, ("wants `more`",)),
    ("", type("Class", (), {"__init__": lambda self: None}), ()),
    ("x", type("Class", (), {"__init__": lambda self: None}), ("lacks `x`",)),
]


@pytest.mark.parametrize(("wanted", "function", "told"), SIGNATURES)
def test_parameters_are_compared(wanted: str, function: Any, told: tuple[str, ...]) -> None:
    assert tuple(dict.fromkeys(differences(wanted, function))) == told


def refuses(x: int) -> NoReturn:
    """Cannot be given here: there is no tile. Use another.

    Args:
        x: accepted.
    """
    raise EmulationError(x)


def takes(x: int, depth: int = 1, **kwargs: Any) -> int:
    """Does something.

    Args:
        x: a number.
        depth: how deep; it has no effect
            in emulation.
        **kwargs: ignored.

    Returns:
        What is not ignored.
    """
    return x


@pytest.mark.parametrize(
    ("wanted", "status", "note"),
    [
        ("takes(x, depth=1, **kwargs)", Status.WORKS, "without effect: `depth`, `**kwargs`"),
        ("takes(x, depth=2)", Status.DIFFERS, "`depth` defaults to 1, not to 2"),
        ("refuses(x)", Status.REFUSED, "Cannot be given here:"),
        ("Status.WORKS", Status.WORKS, ""),
        ("absent", Status.MISSING, ""),
        ("Status.absent", Status.MISSING, ""),
    ],
)
def test_statuses(wanted: str, status: Status, note: str) -> None:
    entry = examine(__name__, wanted)
    assert (entry.status, entry.note) == (status, note)


def test_a_missing_module_and_a_refusing_one() -> None:
    assert examine("ipu_tf.nothing_of_that_name", "x").status is Status.MISSING
    refused = examine("ipu_tf.pva", "OperationAnalysis")
    assert refused.status is Status.REFUSED and refused.note.startswith("pva.OperationAnalysis")
    assert ignored_parameters(property(lambda self: None, doc="Args:\n    x: ignored.\n")) == ()
    assert supported_entry.Entry("x", Status.WORKS).note == ""
