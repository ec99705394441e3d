"""A disk that is full, and one that is read-only: a file system of its own, where Linux lets a test mount one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.subprocess_cases import ROOT

OWN_MOUNTS = ("unshare", "--mount", "--map-root-user")
FULL_THEN_READ_ONLY = """
import logging, os, subprocess, sys
from pathlib import Path
from tests.helpers.resumed_runs import Error, Setting, checkpoints, fitted
from tests.ipu_tf.device.cache.test_cache_entries import computed

disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)], check=True)
said = []
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())
logging.getLogger("ipu_tf").addHandler(handler)
run, cache, setting = disk / "run", disk / "cache", Setting("arrays in order")
cache.mkdir(mode=0o700)


def told(text):
    count = sum(text in line for line in said)
    said.clear()
    return count


def refused(text):
    try:
        fitted(run, setting)
    except Error as error:
        assert text in str(error), error
    else:
        raise AssertionError("not refused")


wanted = fitted(None, setting)
assert fitted(run, setting, 12) is None
assert computed(cache, 2.0) and not computed(cache, 2.0)
filler = open(disk / "filler", "wb", buffering=0)
try:
    while filler.write(bytes(1024)):
        pass
except OSError:
    filler.close()
before = {path: path.read_bytes() for path in [*checkpoints(run), *cache.iterdir()]}
assert len(before) == 3 and not told("could not be written")
refused("The last checkpoint could not be written: [Errno 28] No space left on device")
assert told("Training goes on, the checkpoints before it are unchanged") > 2
assert computed(cache, 3.0) and computed(cache, 5.0) and not computed(cache, 2.0)
assert told("cannot be written to, so the next process compiles again") == 2  # the second time at level INFO
assert {path: path.read_bytes() for path in [*checkpoints(run), *cache.iterdir()]} == before
subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
refused("a folder that can be written to. Received: ")
assert computed(cache, 7.0) and not computed(cache, 2.0) and told("Read-only file system") == 1
subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
(disk / "filler").unlink()
assert fitted(run, setting) == wanted
assert computed(cache, 3.0) and not computed(cache, 3.0)
print("HELD")
"""


def _may_mount() -> bool:
    """Whether a process may mount a file system of its own."""
    try:
        done = subprocess.run([*OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


@pytest.mark.slow
def test_a_full_disk_and_a_read_only_one_lose_nothing(tmp_path: Path) -> None:
    if not _may_mount():
        pytest.skip("mounting a tmpfs needs user namespaces of Linux, or root")
    done = subprocess.run(
        [*OWN_MOUNTS, sys.executable, "-c", FULL_THEN_READ_ONLY, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "HELD" in done.stdout, done.stdout + done.stderr
