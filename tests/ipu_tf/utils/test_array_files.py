"""Files of named arrays: read back bit for bit, or refused."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ipu_tf._data.array_files import read_arrays, write_arrays
from ipu_tf.device.cache.sealed_file import DamagedFile
from tests.helpers.archives import archived, members

ARRAYS: dict[str, np.ndarray] = {
    "a/w": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "b": np.array([1.5, -2], ml_dtypes.bfloat16),
    "file": np.array(3, np.int64),
    "empty": np.zeros((0, 4), np.float16),
    "bits": np.array([True, False]),
    "words": np.array([b"ab", b"c"]),
}


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    """The same arrays, bit for bit."""
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def test_arrays_go_through_a_file(tmp_path: Path) -> None:
    write_arrays(tmp_path / "x", ARRAYS)
    assert_same(read_arrays(tmp_path / "x"), ARRAYS)
    with np.load(tmp_path / "x") as plain:
        np.testing.assert_array_equal(plain["a/w"], ARRAYS["a/w"])


def test_files_without_checksums_are_read(tmp_path: Path) -> None:
    """As they were written before there were any."""
    dtypes = np.frombuffer(json.dumps({"w": "float32", "b": "bfloat16"}).encode(), np.uint8)
    arrays: dict[str, Any] = {"w": ARRAYS["a/w"], "b": ARRAYS["b"].view(np.uint16), "dtypes.json": dtypes}
    np.savez(tmp_path / "x.npz", **arrays)
    assert_same(read_arrays(tmp_path / "x.npz"), {"w": ARRAYS["a/w"], "b": ARRAYS["b"]})


def test_python_objects_are_neither_written_nor_read(tmp_path: Path) -> None:
    objects = np.array([b"a", "b"], object)
    with pytest.raises(ValueError, match="'x' of Python objects"):
        write_arrays(tmp_path / "x", {"x": objects})
    assert list(tmp_path.iterdir()) == []
    write_arrays(tmp_path / "x", {"x": np.zeros(2)})
    stream = io.BytesIO()
    np.save(stream, objects, allow_pickle=True)
    path = tmp_path / "x"
    path.write_bytes(archived(members(path.read_bytes()) | {"x.npy": stream.getvalue()}))
    with pytest.raises(DamagedFile, match="dtype object"):
        read_arrays(tmp_path / "x")


@pytest.mark.parametrize("change", ["exchanged", "missing", "more", "other values", "another dtype", "no JSON"])
def test_other_contents_with_checksums_of_zip_that_fit(change: str, tmp_path: Path) -> None:
    write_arrays(tmp_path / "x", {"a": np.ones(3, np.float32), "b": np.zeros(3, np.float32)})
    whole = members((tmp_path / "x").read_bytes())
    about = json.loads(np.load(tmp_path / "x")["dtypes.json"].tobytes())
    stream = io.BytesIO()
    np.save(stream, np.frombuffer(json.dumps(about | {"a": about["a"] | {"dtype": "int32"}}).encode(), np.uint8))
    without = {name: data for name, data in whole.items() if name != "b.npy"}
    changed = {
        "exchanged": whole | {"a.npy": whole["b.npy"], "b.npy": whole["a.npy"]},
        "missing": without,
        "more": whole | {"c.npy": whole["b.npy"]},
        "other values": whole | {"a.npy": whole["a.npy"][:-1] + b"\1"},
        "another dtype": whole | {"dtypes.json.npy": stream.getvalue()},
        "no JSON": whole | {"dtypes.json.npy": whole["b.npy"]},
    }
    (tmp_path / "x").write_bytes(archived(changed[change]))
    with pytest.raises(DamagedFile, match="is damaged"):
        read_arrays(tmp_path / "x")


WRITER = """
import sys
import numpy as np
from ipu_tf._data.array_files import read_arrays, write_arrays
for _ in range(40):
    write_arrays(sys.argv[1], {"x": np.full(20000, int(sys.argv[2]))})
    assert len(set(read_arrays(sys.argv[1])["x"].tolist())) == 1
"""


def test_processes_that_write_one_file_at_the_same_time(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "x")]
    writers = [subprocess.Popen([*command, number], stderr=subprocess.PIPE) for number in "123"]
    for writer in writers:
        _, errors = writer.communicate()
        assert writer.returncode == 0, errors.decode()[-2000:]
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_file_that_cannot_be_written_whole_leaves_the_old_one(tmp_path: Path, monkeypatch: Any) -> None:
    write_arrays(tmp_path / "x", ARRAYS)

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_arrays(tmp_path / "x", {"other": np.zeros(1000)})
    assert_same(read_arrays(tmp_path / "x"), ARRAYS)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
