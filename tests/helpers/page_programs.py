"""Runs the Python blocks of documents: `python -m tests.helpers.page_programs PAGE...` prints results as JSON.

All pages run in one process, which imports TensorFlow once. The blocks of a page share their names, as a reader's
would; each page starts without a configuration and in a folder of its own. A block with tests is run by pytest.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import pytest

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks_of(page: Path) -> list[str]:
    """Returns the Python blocks of a page, or the cells of a notebook, in order."""
    if page.suffix == ".ipynb":
        cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
        return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


def run_page(page: Path) -> dict[str, Any]:
    """Runs the blocks of a page in a fresh namespace; returns how many ran, what they printed, and the first error."""
    from ipu_tf.emulation import clear_session

    clear_session()
    names: dict[str, Any] = {"__name__": "__main__"}
    ran, error, printed = 0, "", io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        for number, block in enumerate(blocks_of(page)):
            try:
                _run_block(block, f"{page.name}, block {number}", names)
            except BaseException:
                error = traceback.format_exc()
                break
            ran += 1
    return {"ran": ran, "error": error, "printed": printed.getvalue()}


def _run_block(block: str, name: str, names: dict[str, Any]) -> None:
    if not re.search(r"^def test_", block, re.MULTILINE):
        exec(compile(block, name, "exec"), names)
        return
    path = Path("test_of_page.py").absolute()
    path.write_text(block)
    status = pytest.main(["-q", "-p", "pytest_ipu", "-p", "no:cacheprovider", "-p", "no:xdist", str(path)])
    assert status == 0, f"pytest ended with {status}"


def main(pages: list[str]) -> None:
    """Runs pages and prints their results, the output of the blocks left out, as one JSON object."""
    real = os.dup(1)
    os.dup2(2, 1)  # libraries that write to the descriptor itself do not disturb the result
    results = {page: run_page(Path(page).absolute()) for page in pages}
    os.write(real, json.dumps(results).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
