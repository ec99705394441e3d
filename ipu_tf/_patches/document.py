"""Generates `docs/patches.md`, the table of patches for users: `python -m ipu_tf._patches.document`."""

from __future__ import annotations

from ipu_tf._patches.patch import Patch, When
from ipu_tf._patches.table import PATCHES

_HEAD = """\
# What this project changes in TensorFlow and Keras

Some of TensorFlow's and Keras's own functions are replaced, so that scripts need no other change than three lines.

* A model made outside an `IPUStrategy`'s scope, and a session without ops on IPUs, behave as they do without it.
* `ipu_tf.patches.installed()` lists what is changed now, `ipu_tf.patches.uninstall()` puts everything back.
* A test compares every function of both libraries before and after, and finds a change that is not in this table.

An attribute is written `module:Class.attribute`; `*` stands for any text. Written by
`python -m ipu_tf._patches.document > docs/patches.md`."""


def document() -> str:
    """The text of `docs/patches.md`."""
    parts = [_HEAD, *(_section(when) for when in When)]
    return "\n\n".join(parts) + "\n"


def _section(when: When) -> str:
    rows = [_row(patch) for patch in PATCHES if patch.when is when]
    return "\n".join([f"## When {when.value}", "", "| attribute | why |", "| --- | --- |", *rows])


def _row(patch: Patch) -> str:
    return f"| `{patch.target}` | {patch.why} |"


if __name__ == "__main__":
    print(document(), end="")
