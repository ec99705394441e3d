"""The `.pvti` file: recorded events in SQLite, in tables of this project. PopVision cannot open it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from ipu_tf.device.cache.sealed_file import DamagedFile, ForeignFile
from ipu_tf.device.timeline.host_trace import HostTrace, Sample, Span

_KIND = "ipu_tf trace 1"
_SQLITE = b"SQLite format 3\0"
_TABLES = """
CREATE TABLE ABOUT (kind TEXT, pid INTEGER, name TEXT, dropped INTEGER);
CREATE TABLE THREAD (tid INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE EVENT (channel TEXT, label TEXT, tid INTEGER, start_us REAL, duration_us REAL, instant INTEGER);
CREATE TABLE GRAPH_DATA (graph TEXT, series TEXT, unit TEXT, time_us REAL, value REAL);
CREATE TABLE HEATMAP_DATA (heatmap TEXT, unit TEXT, time_us REAL, bin_edges TEXT, bin_quantities TEXT);
"""


def write_pvti(path: Path, trace: HostTrace, pid: int, name: str) -> None:
    """Writes what was recorded to a file, as a whole or not at all; one that is there is replaced.

    Args:
        path: the file.
        trace: what was recorded.
        pid: number of the process.
        name: what the process is called.

    Raises:
        OSError: if it cannot be written.
        ValueError: if a name or label has characters that UTF-8 has not.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        with contextlib.closing(sqlite3.connect(unfinished)) as database, database:
            database.executescript(_TABLES)
            _fill(database, trace, pid, name)
        os.replace(unfinished, path)
    except sqlite3.Error as error:
        raise OSError(f"'{path}' cannot be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _fill(database: sqlite3.Connection, trace: HostTrace, pid: int, name: str) -> None:
    database.execute("INSERT INTO ABOUT VALUES (?, ?, ?, ?)", (_KIND, pid, name, trace.dropped))
    database.executemany("INSERT INTO THREAD VALUES (?, ?)", trace.names().items())
    events = ((s.channel, s.label, s.thread, s.start, s.duration, int(s.instant)) for s in trace.spans)
    database.executemany("INSERT INTO EVENT VALUES (?, ?, ?, ?, ?, ?)", events)
    graphs = ((s.plot, s.series, s.unit, s.time, s.values[0]) for s in trace.samples if not s.edges)
    database.executemany("INSERT INTO GRAPH_DATA VALUES (?, ?, ?, ?, ?)", graphs)
    heatmaps = ((s.plot, s.unit, s.time, json.dumps(s.edges), json.dumps(s.values)) for s in trace.samples if s.edges)
    database.executemany("INSERT INTO HEATMAP_DATA VALUES (?, ?, ?, ?, ?)", heatmaps)


def read_pvti(path: str | os.PathLike[str]) -> tuple[int, dict[int, str], list[Span], list[Sample]]:
    """Returns the number of the process, the names of its threads, its events in the order of time, and its samples.

    Raises:
        OSError: if it cannot be read; FileNotFoundError if there is none.
        ValueError: if it is damaged, or is no trace of this package, such as one that Graphcore's library wrote.
    """
    name = os.fspath(path)
    with open(name, "rb") as file:
        if file.read(len(_SQLITE)) != _SQLITE:
            raise ForeignFile(_not_ours(name))
    try:
        with contextlib.closing(sqlite3.connect(f"{Path(name).absolute().as_uri()}?mode=ro", uri=True)) as database:
            tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
            about = database.execute("SELECT * FROM ABOUT").fetchall() if "ABOUT" in tables else []
            if not about or about[0][0] != _KIND:
                raise ForeignFile(_not_ours(name))
            threads = dict(database.execute("SELECT tid, name FROM THREAD"))
            return int(about[0][1]), threads, list(_spans(database)), list(_samples(database))
    except (sqlite3.Error, TypeError) as error:
        raise DamagedFile(f"'{name}' is damaged: it is no trace. Record it again. ({error})") from error


def _spans(database: sqlite3.Connection) -> Iterator[Span]:
    order = "SELECT * FROM EVENT ORDER BY start_us, duration_us DESC"
    for channel, label, thread, start, duration, instant in database.execute(order):
        yield Span(channel, label, thread, start, duration, bool(instant))


def _samples(database: sqlite3.Connection) -> Iterator[Sample]:
    for graph, series, unit, time, value in database.execute("SELECT * FROM GRAPH_DATA"):
        # SQLite has no NaN and keeps NULL in its place.
        yield Sample(graph, series, unit, time, (math.nan if value is None else value,))
    for heatmap, unit, time, edges, counts in database.execute("SELECT * FROM HEATMAP_DATA"):
        yield Sample(heatmap, "", unit, time, tuple(json.loads(counts)), tuple(json.loads(edges)))


def _not_ours(name: str) -> str:
    return (
        f"'{name}' must be a trace that ipu_tf recorded. Received: another file. Record one with "
        'PVTI_OPTIONS=\'{"enable": "true"}\'; traces of Graphcore\'s library cannot be read.'
    )
