"""Generates `docs/options.md`, the page of every option and argument: `python -m keras_ipu.options.options_page`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ipu_tf._config.argument_table import REQUIRED, ArgumentTable
from ipu_tf._config.base import settings_of
from ipu_tf._config.library_options import KNOWN_OPTIONS
from ipu_tf._pipelining.pipeline_table import PIPELINE
from ipu_tf._tracing.queue_arguments import INFEED, OUTFEED
from ipu_tf.config import IPUConfig
from keras_ipu.options.config_fields import FIELDS
from keras_ipu.options.option_table import METHODS

_HEAD = """# Options

Every option and argument with a type, a range and a default. The tables of this page check what programs set:

* a value of another type raises a `TypeError`, one out of range a `ValueError`, when it is set;
* an unknown name raises an error with the known one that is most like it;
* an unknown name in a dictionary of Graphcore's libraries warns once, for releases of the SDK differ in them.

What becomes of an option here is one of the words of the [glossary](glossary.md#effects-of-options); the reason is in
[SUPPORTED.md](../SUPPORTED.md). Flags of `TF_POPLAR_FLAGS` are in [environment.md](environment.md).
This page is written by `python -m keras_ipu.options.options_page`."""
_COLUMNS = "| name | type | range | default | here | what it says |\n|---|---|---|---|---|---|"


def options_page() -> str:
    """The text of `docs/options.md`."""
    parts = [_HEAD, "## Keras models", *(_section(table) for table in METHODS.values())]
    parts += ["## Fields of `ipu_config.json`", _section(FIELDS)]
    parts += ["## Queues and pipelines", *(_section(table) for table in (INFEED, OUTFEED, PIPELINE))]
    parts += ["## Attributes of `IPUConfig`", "\n".join([_COLUMNS, *_configuration()])]
    parts += ["## Names in dictionaries of library options", "\n".join(_libraries())]
    return "\n\n".join(parts) + "\n"


def _section(table: ArgumentTable) -> str:
    rows = (
        _row(
            each.name,
            each.value_type.text,
            each.value_type.range,
            "required" if each.default is REQUIRED else f"`{each.default!r}`",
            each.effect,
            each.meaning,
        )
        for each in table.arguments
    )
    return "\n".join([f"### `{table.function}`", "", _COLUMNS, *rows])


def _configuration() -> Iterator[str]:
    for item in settings_of(IPUConfig()):
        of = item.metadata
        assert of.effect is not None
        words = (of.__doc__ or "").split("\n\n")[0]
        yield _row(of.name, of.type or "", of.range, f"`{of.default!s}`", of.effect.value, words)


def _libraries() -> Iterator[str]:
    yield "| dictionary | names |\n|---|---|"
    for where, names in KNOWN_OPTIONS.items():
        yield f"| `{where}` | {', '.join(f'`{name}`' for name in names)} |"


def _row(name: str, *cells: str) -> str:
    return " | ".join([f"| `{name}`", *(" ".join(cell.split()).replace("|", "\\|") for cell in cells)]) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the page.

    Args:
        arguments: of the command line; by default those of the process.
    """
    parser = argparse.ArgumentParser(
        prog="python -m keras_ipu.options.options_page", description="Writes docs/options.md."
    )
    parser.add_argument("file", nargs="?", type=Path, default=Path("docs/options.md"))
    parser.parse_args(arguments).file.write_text(options_page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
