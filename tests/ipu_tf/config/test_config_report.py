"""Warnings and log lines about the configuration, as a user without logging set-up sees them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from ipu_tf._config.messages import LOGGER, warn_user

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
from ipu_tf.config import IPUConfig
cfg = IPUConfig()
cfg.auto_select_ipus = 1
cfg.configure_ipu_system()
cfg.configure_ipu_system()
print("then another")
cfg.auto_select_ipus = [1, 2]
cfg.configure_ipu_system()
"""


def test_a_plain_program_shows_each_configuration_once_on_stderr() -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True, timeout=120
    )
    shown = [line for line in done.stderr.splitlines() if line.startswith("ipu_tf:")]
    assert [line.split(" (jax ")[0] for line in shown] == [
        "ipu_tf: configured /device:IPU:0 with 1 emulated IPU",
        "ipu_tf: Resetting existing IPU configuration before applying new configuration; "
        "configured /device:IPU:0 with 1 emulated IPU, /device:IPU:1 with 2 emulated IPUs",
    ]
    assert all(line.endswith(" on cpu)") for line in shown)
    assert done.stdout == "then another\n"


@pytest.mark.parametrize("handled", [True, False])
def test_a_program_with_its_own_logging_sees_no_line_twice(
    handled: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()] if handled else [])
    LOGGER.info("a note")
    assert capsys.readouterr().err == ("" if handled else "a note\n")


def test_the_logger_can_be_silenced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    request.addfinalizer(lambda: LOGGER.setLevel(logging.INFO))
    LOGGER.setLevel(logging.WARNING)
    LOGGER.info("a note")
    LOGGER.warning("a warning")
    assert capsys.readouterr().err == "a warning\n"


def test_warnings_point_out_of_the_project() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_user("look", UserWarning)
    assert [(item.filename, str(item.message)) for item in caught] == [(__file__, "look")]
