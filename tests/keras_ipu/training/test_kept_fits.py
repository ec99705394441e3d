"""A folder of executables, shared by models that differ in one thing each: the same bits, and nothing traced again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.kept_fits import CHANGES
from tests.helpers.subprocess_cases import ROOT

Fits = dict[str, tuple[str, int, int]]
"""By name of a change: hash of the numbers, functions traced, executables loaded."""


def fits(backend: str, folder: Path, *arguments: str) -> Fits:
    flags = {"KERAS_BACKEND": backend, "TF_POPLAR_FLAGS": f"--executable_cache_path={folder}"}
    command = [sys.executable, "-m", "tests.helpers.kept_fits", *arguments]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **flags}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = re.findall(r"FIT (.+): (\w+) (\d+) (\d+)", done.stdout)
    return {name: (numbers, int(traced), int(loaded)) for name, numbers, traced, loaded in lines}


def check_shared(backend: str, names: list[str], folder: Path) -> None:
    only = ["--only", *names]
    traced = fits(backend, folder / "traced", "--traced", *only)
    assert {*traced} == {*names}
    # How many steps an execution has is the one change that changes no number.
    assert len({numbers for numbers, _, _ in traced.values()}) == len({*names} - {"steps"})
    assert all(count >= 2 for _, count, _ in traced.values())  # of training, and of prediction
    first, again = fits(backend, folder / "kept", *only), fits(backend, folder / "kept", *only)
    for name, (numbers, functions, _) in traced.items():
        assert first[name][0] == again[name][0] == numbers, name
        assert again[name][1:] == (0, functions), name


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_models_that_share_a_folder(backend: str, tmp_path: Path) -> None:
    check_shared(backend, ["base", "regularizer", "batch", "steps"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_more_models_that_share_a_folder(backend: str, tmp_path: Path) -> None:
    check_shared(backend, [*CHANGES], tmp_path)
    # Another order gives layers other numbers: what has them in its key is traced again.
    after = fits(backend, tmp_path / "kept", "--backwards")
    assert {name: each[0] for name, each in after.items()} == {
        name: each[0] for name, each in fits(backend, tmp_path / "kept").items()
    }
