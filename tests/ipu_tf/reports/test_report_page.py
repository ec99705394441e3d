"""The HTML page of a report: whole, without network, and its lists work in a browser."""

from __future__ import annotations

import dataclasses
import html.parser
import json
import re
import shutil
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ipu_tf.device.program.program import Program, StraightLinePart
from ipu_tf.device.run.pipeline_timer import Measured
from ipu_tf.pipeline import PipelineShape, interleaved
from ipu_tf.reports import Report, StageMemory, report_of, write_page
from ipu_tf.reports.page import page_html

CHROMIUM = shutil.which("chromium")
_VOID = {"meta", "input", "line", "polygon", "rect", "br"}


def report() -> Report:
    """A report on a loop, a branch and a product."""

    def function(x: jax.Array) -> jax.Array:
        with jax.named_scope("</script><b>layer"):
            x = jax.lax.scan(lambda c, _: (c + jnp.sum(jnp.outer(c, c)), None), x, None, length=3)[0]
        return jax.lax.cond(x[0] > 0, lambda x: x * 2, lambda x: jnp.sum(jnp.outer(x, x)) * x, x)

    part = StraightLinePart(lambda live, hidden, _: ((function(*live),), hidden, {}), (0,), (1,))
    return report_of(Program("<step>", (jax.ShapeDtypeStruct((100,), np.float32),), (part,), (1,), {}))


class Page(html.parser.HTMLParser):
    """Elements of a page: it notes what is not closed, and every address in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.texts: dict[str, str] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes an element."""
        self.open += [] if tag in _VOID else [tag]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        """Checks that the innermost element ends."""
        if tag not in _VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keeps the text of each kind of element."""
        if self.open:
            self.texts[self.open[-1]] = self.texts.get(self.open[-1], "") + data


def test_the_page_is_whole_and_needs_no_network() -> None:
    text = page_html(report())
    page = Page(text)
    assert not page.open
    assert len(set(page.ids)) == len(page.ids)
    assert {address for address in page.addresses if not address.startswith("#")} == set()
    assert {address.removeprefix("#") for address in page.addresses} <= set(page.ids)
    assert not re.search(r"https?://|@import|url\(", text)
    assert "Report of an emulated IPU" in text and "modelled" in text
    assert page.texts["h1"] == "<step>"
    assert "branches:" in page.texts["summary"] and "loop, 3 times" in page.texts["summary"]


def test_the_data_are_those_of_the_report() -> None:
    made = report()
    text = page_html(made)
    [data] = re.findall(r'id="data">(.*?)</script>', text)
    [part] = json.loads(data)
    assert [value[2] for value in part["values"]] == [value.bytes for value in made.parts[0].values]
    assert [each[1] for each in part["operations"]] == [each.total for each in made.parts[0].operations]
    names = []
    for place, *_ in part["operations"]:
        scopes: list[str] = []
        while place >= 0:
            place, scope = part["names"][place]
            scopes.insert(0, scope)
        names.append("/".join(scopes))
    assert names == [each.name for each in made.parts[0].operations]


def test_a_pipeline_has_its_planned_and_measured_timetable() -> None:
    made = report()
    planned = interleaved(PipelineShape(4), 8)
    times = tuple(Measured(each.task, each.device, each.tick / 10, each.tick / 10 + 0.05) for each in planned.placed())
    part = dataclasses.replace(made.parts[0], pipeline=planned, task_times=times)
    text = page_html(dataclasses.replace(made, parts=(part,)))
    assert not Page(text).open
    assert text.count('<rect class="kF"') == text.count('<rect class="kB"') == 4 * 8
    assert "interleaved, training, 4 stages on 4 IPUs" in text
    stages = (
        StageMemory(0, 0, (), *[tuple(range(planned.ticks))] * 3),
        StageMemory(1, 1, (), *[(7,) * planned.ticks] * 3),
    )
    staged = page_html(dataclasses.replace(made, parts=(dataclasses.replace(part, stages=stages),)))
    assert not Page(staged).open
    assert {"part-0", "part-1", "values-1", "operations-1"} <= set(Page(staged).ids)
    assert f"tick {planned.ticks - 1}: U in stage 0; U in stage 1" in staged and "most in stashes" in staged
    # The memory of all stages over ticks comes first.
    assert staged.index("all stages, tick by tick") < staged.index("Memory over") < staged.index("Summary</h2>")
    [over, alone] = json.loads(re.findall(r'id="data">(.*?)</script>', staged)[0])
    assert (over["of"], alone["of"]) == ("tick", "operation")
    alone = page_html(dataclasses.replace(made, parts=(dataclasses.replace(part, task_times=()),)))
    assert "Nothing was measured: the pipeline ran as one loop" in alone


@pytest.mark.skipif(CHROMIUM is None, reason="needs the browser chromium, to run the page's script")
def test_a_browser_lists_what_is_alive_at_the_peak(tmp_path: Path) -> None:
    made = report()
    write_page(made, tmp_path / "report.html")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    ran = subprocess.run(
        [*command, "--dump-dom", (tmp_path / "report.html").as_uri()], capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    part = made.parts[0]
    [alive] = re.findall(r'<div class="alive" id="alive-0"[^>]*>(.*?)</table>', ran.stdout, re.DOTALL)
    assert f"Alive at operation {part.peak_index}, " in alive
    inside = 1 if part.operations[part.peak_index].inside else 0
    values = sum(value.bytes > 0 for value in part.alive_at(part.peak_index))
    assert alive.count("<tr>") - 1 == values + inside
    assert ran.stdout.count('aria-sort="descending"') == 3
