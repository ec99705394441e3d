"""Every Python block of the documents runs, links of the site lead somewhere, pictures are what their script draws."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ipu_tf import pipeline
from tests.helpers.page_programs import blocks_of

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
PAGES = [path for path in sorted((ROOT / "docs").rglob("*.md")) if blocks_of(path)] + NOTEBOOKS
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    """The result of each page, from one process for all of them; warnings are errors."""
    command = [sys.executable, "-W", "error", "-m", "tests.helpers.page_programs", *map(str, PAGES)]
    environment = dict(os.environ, PYTHONPATH=str(ROOT), PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


@each_page
def test_the_blocks_of_a_page_run(results: dict[str, dict[str, Any]], page: Path) -> None:
    result = results[str(page)]
    assert result["error"] == "", result["printed"] + result["error"]
    assert result["ran"] == len(blocks_of(page))


def test_pages_for_users_have_programs() -> None:
    names = {page.name for page in PAGES}
    assert {"keras.md", "splitting.md", "loops.md", "serving.md", "testing.md", "teaching.md"} <= names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_shows_what_its_cells_print(results: dict[str, dict[str, Any]], path: Path) -> None:
    outputs = [out for cell in json.loads(path.read_text())["cells"] for out in cell.get("outputs", ())]
    shown = "".join(line for out in outputs if out["output_type"] == "stream" for line in out["text"])
    kept = [line for line in shown.splitlines() if not re.search(r"\d\.\d{6}", line)]  # losses differ by rounding
    assert kept and [line for line in kept if line not in results[str(path)]["printed"].splitlines()] == []


def test_an_error_in_a_block_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\na = 1\n```\ntext\n```python\nassert a == 2, 'no'\n```\n")
    command = [sys.executable, "-m", "tests.helpers.page_programs", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)[str(page)]
    assert result["ran"] == 1 and "AssertionError: no" in result["error"]


def test_pictures_are_as_their_script_draws_them() -> None:
    path = ROOT / "docs" / "pictures" / "make_pictures.py"
    spec = importlib.util.spec_from_file_location("make_pictures", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    drawn: dict[str, str] = module.pictures()
    assert {path.name for path in path.parent.glob("*.svg")} == set(drawn)
    for name, text in drawn.items():
        assert (path.parent / name).read_text(encoding="utf-8") == text, f"{name}: run {path.relative_to(ROOT)}"


def test_pictures_in_pages_follow_the_colours_of_the_site() -> None:
    """Notebooks have pictures within the page, whose own styles follow the system's colours alone.

    The others are images, which follow `color-scheme`. The theme sets it for its dark colours only.
    """
    picture = pipeline.timetable_svg(pipeline.grouped(pipeline.PipelineShape(2), 4))
    light, dark = re.findall(r"<style>(.*?)@media[^{]*{(.*?)</style>", picture, re.DOTALL)[0]
    site = re.sub(r"/\*.*?\*/", "", (ROOT / "docs" / "site.css").read_text(), flags=re.DOTALL)
    assert "*/" not in site  # text beside a comment takes the next rule with it
    assert '[data-md-color-scheme="default"] { color-scheme: light; }' in site
    for scheme, styles in (("default", light), ("slate", dark)):
        rules = re.findall(r"(\.ipu-\w+){(\w+):(#\w+)}", styles)
        assert len(rules) == 6
        for name, what, colour in rules:
            assert f'[data-md-color-scheme="{scheme}"] {name} {{ {what}: {colour}; }}' in site


@pytest.mark.slow
def test_the_site_is_built_and_has_no_broken_link(tmp_path: Path) -> None:
    """`strict` makes warnings errors: links, anchors and pages outside of the navigation. Needs the extra `docs`."""
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    assert not [*tmp_path.rglob("*.py"), *tmp_path.rglob("*.pyc")]
    assert "ipu_tf.loops.repeat" in (tmp_path / "api" / "loops.html").read_text()
    first = (tmp_path / "index.html").read_text()
    assert "https://fonts" not in first and "What importing it changes" in first  # the README
