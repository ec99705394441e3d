"""Generates SUPPORTED.md, which lists each of Graphcore's public names and its support: `python -m ipu_tf.supported`.

names of Graphcore's documentation ──► the objects behind them ──► a table
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ipu_tf._compat.aliases import install_aliases
from ipu_tf._config.argument_table import ArgumentTable
from ipu_tf._config.base import settings_of
from ipu_tf._config.flag_table import FLAGS
from ipu_tf._config.treatment import Effect
from ipu_tf._pipelining.pipeline_table import PIPELINE
from ipu_tf._supported.entry import Entry, Status, attribute, examine
from ipu_tf._supported.keras_names import KERAS_NAMES
from ipu_tf._supported.tensorflow_names import TENSORFLOW_NAMES
from ipu_tf._tracing.queue_arguments import INFEED, OUTFEED
from ipu_tf.config import IPUConfig

_EFFECTS = {Effect.MODELLED: "works", Effect.NO_EFFECT: "recorded without effect", Effect.WARNS: "warns: not emulated"}
_HEAD = """# What is supported

Every public name of Graphcore's TensorFlow and Keras (SDK 3.4, and what older releases had beside it), and what becomes
of it here. This file is written by `python -m ipu_tf.supported`, which looks at the objects behind the names; a test
compares the two. "works" says that the name exists and takes Graphcore's parameters; the tests say what it computes.

- **works**: with Graphcore's parameters. Arguments that do nothing here are named;
  `ipu_tf.emulation.ignored_arguments()` lists those that a program gave. Types, ranges and defaults are in
  [docs/options.md](docs/options.md).
- **works, with other parameters**: it exists, and differs as the note says.
- **refused**: it can be imported; using it raises an `EmulationError` that says why and what to use instead.
- **missing**: importing it raises an error that names it.
"""


def report() -> str:
    """The text of SUPPORTED.md."""
    install_aliases()
    tables = {
        where: [examine(where[1], name) for name in names]
        for where, names in {**TENSORFLOW_NAMES, **KERAS_NAMES}.items()
    }
    counts = collections.Counter(entry.status for entries in tables.values() for entry in entries)
    total = "; ".join(f"{status.value}: {counts[status]}" for status in Status if counts[status])
    lines = [_HEAD, f"{sum(counts.values())} names ({total})."]
    for (title, module), entries in tables.items():
        lines += ["", f"## {title}: `{module}`", "", *_table(entries)]
    lines += ["", "## Arguments of queues and pipelines", "", *_arguments((INFEED, OUTFEED, PIPELINE))]
    lines += ["", "## Options of Keras models", "", *_arguments(_keras_tables())]
    lines += ["", "## Attributes of `IPUConfig`", "", *_configuration()]
    lines += ["", "## Flags of `TF_POPLAR_FLAGS`", "", *_flags()]
    return "\n".join(lines) + "\n"


def _table(entries: Sequence[Entry]) -> Iterator[str]:
    yield "| name | here | note |"
    yield "|---|---|---|"
    for entry in entries:
        yield f"| `{entry.name}` | {entry.status.value} | {_cell(entry.note)} |"


def _arguments(tables: Iterable[ArgumentTable]) -> Iterator[str]:
    yield "| argument | here | note |"
    yield "|---|---|---|"
    for table in tables:
        for each in table.arguments:
            here = "refused" if each.refused else _EFFECTS[each.treatment.effect]
            yield f"| `{table.function}({each.name})` | {here} | {_cell(each.treatment.reason)} |"


def _keras_tables() -> list[ArgumentTable]:
    """The tables of the options of Keras models; this package does not import the one that has them."""
    found: dict[str, ArgumentTable] = attribute("keras_ipu.options.option_table", "METHODS")
    return list(found.values())


def _configuration() -> Iterator[str]:
    yield "| attribute | here | note |"
    yield "|---|---|---|"
    for item in settings_of(IPUConfig()):
        metadata = item.metadata
        assert metadata.effect is not None
        yield f"| `{metadata.name}` | {_EFFECTS[metadata.effect]} | {_cell(metadata.effect_reason)} |"


def _flags() -> Iterator[str]:
    yield "| flag | here | note |"
    yield "|---|---|---|"
    for flag in FLAGS:
        effect = "refused" if flag.refused else _EFFECTS[flag.treatment.effect]
        yield f"| `--{flag.name}` | {effect} | {_cell(flag.treatment.reason)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the file, or with `--check` compares it.

    Args:
        arguments: of the command line; by default those of the process.

    Returns:
        0, or 1 if `--check` found another text.
    """
    parser = argparse.ArgumentParser(prog="python -m ipu_tf.supported", description="Writes SUPPORTED.md.")
    parser.add_argument("file", nargs="?", type=Path, default=Path("SUPPORTED.md"))
    parser.add_argument("--check", action="store_true", help="only say whether the file is up to date")
    chosen = parser.parse_args(arguments)
    text = report()
    if not chosen.check:
        chosen.file.write_text(text, encoding="utf-8")
        return 0
    if chosen.file.exists() and chosen.file.read_text(encoding="utf-8") == text:
        return 0
    print(f"{chosen.file} is not up to date. Run: python -m ipu_tf.supported", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
