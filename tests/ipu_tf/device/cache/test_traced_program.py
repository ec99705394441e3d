"""The index of the executable cache: functions of one source are traced once; anything else is traced again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ipu_tf.device import op_scopes
from ipu_tf.device.cache import traced_program
from ipu_tf.device.cache.cache_entry import SUFFIX as ENTRY
from ipu_tf.device.cache.executable_cache import CachedFunction
from ipu_tf.device.cache.traced_program import SUFFIX
from ipu_tf.device.device_log import LOG, TRACE

ONES = np.ones(3, np.float32)


class Counted:
    """A function that counts how often it is traced."""

    def __init__(self, factor: float = 2.0) -> None:
        self.traced, self.factor = 0, factor

    def __call__(self, x: Any, other: Any) -> Any:
        self.traced += 1
        return {"product": x["a"] * jnp.float32(self.factor), "sum": (x["a"] + x["b"], x["a"].astype(jnp.bfloat16))}


def run(
    folder: Path, source: str = "s", a: Any = ONES, donate: tuple[int, ...] = (), factor: float = 2.0
) -> tuple[Any, int]:
    """Results of a function that is new to the process, and how often it was traced."""
    function = Counted(factor)
    arguments = {"a": jnp.asarray(a), "b": jnp.ones(3)}, jnp.zeros(7)  # the second is not read
    results = CachedFunction(function, donate, folder, source=source)(*arguments)
    return jax.tree.map(lambda each: (str(each.dtype), np.asarray(each).tolist()), results), function.traced


def test_a_function_of_the_same_source_is_not_traced_again(tmp_path: Path) -> None:
    first, traced = run(tmp_path)
    assert traced == 1
    assert run(tmp_path) == (first, 0)
    assert run(tmp_path, donate=(0,)) == (first, 1)
    assert run(tmp_path, donate=(0,)) == (first, 0)
    assert first["sum"] == (("float32", [2.0] * 3), ("bfloat16", [1.0] * 3))


def test_donated_arguments_are_given_up(tmp_path: Path) -> None:
    for traced in (1, 0):
        function, given = Counted(), {"a": jnp.ones(3), "b": jnp.ones(3)}
        CachedFunction(function, (0,), tmp_path, source="s")(given, jnp.zeros(7))
        assert function.traced == traced and given["a"].is_deleted()


def test_without_a_source_each_is_traced(tmp_path: Path) -> None:
    assert [run(tmp_path, source="")[1] for _ in range(2)] == [1, 1]
    assert not list(tmp_path.glob(f"*{SUFFIX}"))


def change_settings(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(traced_program, "_settings", lambda: "others")


def change_package(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(traced_program, "_package", lambda: "another")


def change_native(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("IPU_TF_NATIVE", "0")


def change_threads(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("NPROC", "7")


def change_flags(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")


def change_names(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(op_scopes._kept, "value", True)


def change_log(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(LOG, "level", TRACE)
    monkeypatch.setattr(LOG, "_cache", {})


def damage(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for path in folder.glob(f"*{SUFFIX}"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")


def empty(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for path in folder.glob(f"*{SUFFIX}"):
        path.write_bytes(b"")


def remove_entries(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for path in folder.glob(f"*{ENTRY}"):
        path.unlink()


def open_to_all(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for path in folder.glob(f"*{SUFFIX}"):
        path.chmod(0o666)


CHANGES: list[Callable[[pytest.MonkeyPatch, Path], None]] = [
    *(change_settings, change_package, change_native, change_threads, change_flags, change_names, change_log),
    *(damage, empty, remove_entries, open_to_all),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_it_is_traced_again_after(
    change: Callable[[pytest.MonkeyPatch, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = run(tmp_path)
    change(monkeypatch, tmp_path)
    assert run(tmp_path) == (first, 1)


def test_it_is_traced_again_for_other_arguments(tmp_path: Path) -> None:
    kinds = [ONES, np.ones(3, np.int32), np.ones(1, np.float32), np.ones((3, 3), np.float32), np.ones(3, np.float16)]
    assert [run(tmp_path, a=kind)[1] for kind in kinds] == [1] * len(kinds)
    assert [run(tmp_path, a=kind)[1] for kind in kinds] == [0] * len(kinds)


def test_it_is_traced_again_for_another_source(tmp_path: Path) -> None:
    assert run(tmp_path, "one", factor=2.0)[0]["product"] == ("float32", [2.0] * 3)
    assert run(tmp_path, "other", factor=3.0)[0]["product"] == ("float32", [3.0] * 3)


def test_settings_of_jax_count() -> None:
    before = traced_program._settings()
    assert traced_program._settings() == before
    with jax.default_matmul_precision("highest"):
        assert traced_program._settings() != before
    with jax.enable_x64(not jax.config.jax_enable_x64):  # type: ignore[attr-defined]
        assert traced_program._settings() != before


def test_a_folder_that_can_only_be_read_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **named: Any) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(traced_program, "write_sealed", refused)
    assert [run(tmp_path)[1] for _ in range(2)] == [1, 1]
