"""Compilations are logged: at INFO each one, on a terminal those over a second, into a pipe none unless asked."""

from __future__ import annotations

import io
import logging
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._config import messages
from ipu_tf._config.messages import LOGGER, log_to
from ipu_tf.device import device_log
from ipu_tf.device.run import compilation_log
from tests.helpers.device_counts import device_work


class Terminal(io.StringIO):
    """A terminal, or a pipe."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self.is_terminal


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Levels and destination as they were, and no configuration that would be kept."""
    before = LOGGER.level, compilation_log.LOG.level, device_log.LOG.level
    ipu.config.reset_ipu_configuration()
    yield
    LOGGER.setLevel(before[0])
    compilation_log.LOG.setLevel(before[1])
    device_log.LOG.setLevel(before[2])
    log_to("stderr")
    messages._applied.clear()  # noqa: SLF001 - the next test's environment is as new
    ipu.config.reset_ipu_configuration()


def run() -> None:
    """Compiles a function and runs it twice."""
    ipu.config.IPUConfig().configure_ipu_system()
    function = tf.function(lambda x: tf.reduce_sum(x * x))
    with device_work() as work:
        for _ in range(2):
            assert float(ipu.ipu_strategy.IPUStrategy().run(function, args=[tf.ones([8])])) == 8.0
    assert (work.counts.programs, work.counts.executions) == (1, 2)


def compilations(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines on compilations."""
    return [record.getMessage() for record in caplog.records if record.name == "ipu_tf.compilation"]


def test_info_has_one_line_for_each_compilation(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("POPLAR_LOG_LEVEL", "INFO")
    run()
    [line] = compilations(caplog)
    assert line.startswith("ipu_tf: compiled ") and "XLA" in line and "KiB of parameters" in line


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ((tf.ones([8]), 2.0), (tf.ones([5]), 2.0), "x was float32[8] and is float32[5]"),
        ((tf.ones([8]), 2.0), (tf.ones([8]), 3.0), "rate was 2.0 and is 3.0"),
        ((tf.ones([8]), 2.0), (tf.ones([8], tf.float16), 2.0), "x was float32[8] and is float16[8]"),
        (({"a": tf.ones([8])}, 2.0), ({"a": tf.ones([3])}, 2.0), "x['a'] was float32[8] and is float32[3]"),
    ],
    ids=["shape", "value", "dtype", "structure"],
)
def test_a_recompilation_says_which_argument_changed(
    first: Any, second: Any, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("POPLAR_LOG_LEVEL", "INFO")
    ipu.config.IPUConfig().configure_ipu_system()
    function = tf.function(lambda x, rate: tf.nest.map_structure(lambda each: each * rate, x))
    for arguments in (first, first, second):
        ipu.ipu_strategy.IPUStrategy().run(function, args=arguments)
    once, again = compilations(caplog)
    assert "again" not in once and again.endswith(f"; again, as {said}")


@pytest.mark.parametrize("place", [0, 5_000, 9_999], ids=["at the start", "in the middle", "at the end"])
def test_long_arguments_are_cut_where_they_differ(
    place: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("POPLAR_LOG_LEVEL", "INFO")
    ipu.config.IPUConfig().configure_ipu_system()
    function = tf.function(lambda x, prompt: x * len(prompt))
    for letter in "ab":
        prompt = "-" * place + letter + "-" * (9_999 - place)
        ipu.ipu_strategy.IPUStrategy().run(function, args=[tf.ones([8]), prompt])
    said = compilations(caplog)[-1].partition("; again, as ")[2]
    was, becomes = said.removeprefix("prompt was ").split(" and is ")
    assert max(len(was), len(becomes)) < 80
    assert "a" in was and becomes == was.replace("a", "b")


def test_of_programs_before_the_one_most_like_it_is_compared(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("POPLAR_LOG_LEVEL", "INFO")
    ipu.config.IPUConfig().configure_ipu_system()
    function = tf.function(lambda x, y: x[0] + y[0])
    for sizes in ((2, 3), (4, 5), (2, 7)):
        ipu.ipu_strategy.IPUStrategy().run(function, args=[tf.ones([size]) for size in sizes])
    assert compilations(caplog)[-1].endswith("; again, as y was float32[3] and is float32[7]")


def test_programs_in_sessions_name_what_changed_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("POPLAR_LOG_LEVEL", "INFO")
    ipu.config.IPUConfig().configure_ipu_system()
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        fed = v1.placeholder(tf.float32, [None], "fed")
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            [total] = ipu.ipu_compiler.compile(lambda x: tf.reduce_sum(x), [fed])
        assert [session.run(total, {fed: [1.0] * size}) for size in (3, 3, 4)] == [3.0, 3.0, 4.0]
    once, again = compilations(caplog)
    assert "again" not in once and again.endswith(" was float32[3] and is float32[4]")


@pytest.mark.parametrize("level", ["", "WARN", "OFF"])
def test_other_levels_have_none(level: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("POPLAR_LOG_LEVEL", level)
    run()
    assert compilations(caplog) == []


@pytest.mark.parametrize("level", ["INFO", "DEBUG", "TRACE"])
def test_lower_levels_say_what_runs(
    level: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("POPLAR_LOG_LEVEL", level)
    ipu.config.IPUConfig().configure_ipu_system()
    data = tf.data.Dataset.from_tensor_slices(np.ones((6, 5), np.float32))
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data), ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(x: tf.Tensor) -> Any:
        return outfeed.enqueue(tf.tanh(x, name="squashed"))

    def program() -> None:
        ipu.loops.repeat(6, body, [], infeed)

    ipu.ipu_strategy.IPUStrategy().run(tf.function(program))
    said = [record.getMessage() for record in caplog.records if record.name == "ipu_tf.device"]
    name, carried = infeed._id, outfeed._id  # noqa: SLF001 - as it is called in the program
    parts = [line for line in said if f"infeed {name} of float32[5]; outfeed {carried} of float32[5]" in line]
    chunks = [line for line in said if f"; infeed {name}: " in line]
    iterations = [int(re.findall(r"chunk of (\d+) iterations", line)[0]) for line in chunks]
    operations = [line for line in said if re.search(r"squashed\S*/tanh -> float32\[5\]", line)]
    assert (len(parts), sum(iterations), bool(operations)) == {
        "INFO": (0, 0, False),
        "DEBUG": (1, 6, False),
        "TRACE": (1, 6, True),
    }[level]


@pytest.mark.parametrize(("least", "is_terminal", "said"), [(0.0, True, 1), (0.0, False, 0), (1e9, True, 0)])
def test_a_terminal_gets_those_that_take_long(
    least: float, is_terminal: bool, said: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(is_terminal)
    monkeypatch.setattr(compilation_log, "_LONG_SECONDS", least)
    monkeypatch.setattr(sys, "stderr", terminal)
    run()
    assert terminal.getvalue().count("ipu_tf: compiled ") == said


@pytest.mark.parametrize(
    ("name", "value"), [("LEVEL", "OFF"), ("LEVEL", "ERR"), ("LEVEL", "WARN"), ("DEST", "log.txt"), ("DEST", "stdout")]
)
def test_a_terminal_gets_none_where_the_environment_says_what_is_logged(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    terminal = Terminal(True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compilation_log, "_LONG_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv(f"POPLAR_LOG_{name}", value)
    run()
    assert "ipu_tf: compiled " not in terminal.getvalue()


def test_the_programs_own_level_stays_when_a_system_is_configured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPLAR_LOG_LEVEL", "DEBUG")
    levels = []
    for level in (logging.ERROR, logging.WARNING):
        ipu.config.IPUConfig().configure_ipu_system()
        levels.append(LOGGER.level)
        LOGGER.setLevel(level)
    monkeypatch.setenv("POPLAR_LOG_LEVEL", "INFO")
    ipu.config.IPUConfig().configure_ipu_system()
    assert [*levels, LOGGER.level] == [logging.DEBUG, logging.ERROR, logging.INFO]


def test_a_file_that_cannot_be_written_later_does_not_end_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    monkeypatch.setenv("POPLAR_LOG_DEST", str(tmp_path / "logs" / "log.txt"))
    ipu.config.IPUConfig().configure_ipu_system()
    shutil.rmtree(tmp_path / "logs")
    LOGGER.warning("said to nobody")


def test_a_stream_that_cannot_be_written_does_not_end_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(sys, "stderr", closed)
    monkeypatch.setattr(logging, "raiseExceptions", False)
    LOGGER.warning("said to nobody")


def test_the_destination_is_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POPLAR_LOG_LEVEL", "debug")
    monkeypatch.setenv("POPLAR_LOG_DEST", str(tmp_path / "log.txt"))
    run()
    text = (tmp_path / "log.txt").read_text()
    assert text.count("ipu_tf: compiled ") == 1 and "configured /device:IPU:0" in text
    assert LOGGER.level == logging.DEBUG


def test_bad_settings_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POPLAR_LOG_LEVEL", "LOUD")
    with pytest.raises(ValueError, match="POPLAR_LOG_LEVEL must be one of OFF, ERR, .* Received: 'LOUD'"):
        ipu.config.IPUConfig().configure_ipu_system()
    monkeypatch.setenv("POPLAR_LOG_LEVEL", "INFO")
    monkeypatch.setenv("POPLAR_LOG_DEST", str(tmp_path / "none" / "log.txt"))
    with pytest.raises(
        FileNotFoundError, match="POPLAR_LOG_DEST must be stderr, stdout or a file .* Received: '.*none"
    ):
        ipu.config.IPUConfig().configure_ipu_system()
