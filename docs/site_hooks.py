"""Hooks of the site's generator: documents of the root folder and notebooks become pages, and links stay right."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

_ROOT = Path(__file__).resolve().parents[1]
_DOCUMENTS = ("CHANGELOG.md", "CONTRIBUTING.md", "BUILD_NOTES.md", "SUPPORTED.md")
#: Where files of the repository are in the site: the README is its first page, before the list of documents.
_PLACES = {
    "README.md": "index.md",
    "docs/README.md": "documents.md",
    **{name: f"project/{name}" for name in _DOCUMENTS},
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")


@event_priority(100)  # before mkdocs-jupyter, which makes pages of the notebooks that it finds
def on_files(files: Files, config: Any) -> Files:
    """Adds the documents of the root folder and the notebooks."""
    files.remove(files.src_uris["README.md"])  # mkdocs would make it the first page
    for name, place in _PLACES.items():
        files.append(File.generated(config, place, content=(_ROOT / name).read_text(encoding="utf-8")))
    for path in sorted((_ROOT / "examples").glob("*.ipynb")):
        files.append(File(f"examples/{path.name}", str(_ROOT), config.site_dir, use_directory_urls=False))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turns links between files of the repository into links between pages of the site."""
    here = page.file.src_uri
    source = next((name for name, place in _PLACES.items() if place == here), f"docs/{here}")
    return _LINK.sub(lambda link: _moved(link, source, here), markdown)


def _moved(link: re.Match[str], source: str, here: str) -> str:
    picture, text, target, anchor = link.groups()
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if wanted in _PLACES:
        place = _PLACES[wanted]
    elif wanted.startswith("docs/"):
        place = wanted.removeprefix("docs/")
        place = posixpath.join(place, "README.md") if (_ROOT / wanted).is_dir() else place
    else:
        return str(text)  # a file that is no page
    return f"{picture}[{text}]({posixpath.relpath(place, posixpath.dirname(here) or '.')}{anchor or ''})"
