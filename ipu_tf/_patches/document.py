"""Generates `docs/patches.md`, the table of patches for users: `python -m ipu_tf._patches.document`."""

from __future__ import annotations

from ipu_tf._patches.patch import When
from ipu_tf._patches.table import PATCHES

_HEAD = """\
# What this project changes in TensorFlow, Keras and JAX

Some of TensorFlow's and Keras's own functions are replaced, so that scripts need no other change than three lines.
JAX gets listeners, and no function of it is replaced.

* A model made outside an `IPUStrategy`'s scope, and a session without ops on IPUs, behave as they do without it.
* `ipu_tf.patches.installed()` lists what is changed now, `ipu_tf.patches.uninstall()` puts everything back.
* A test compares every function of these libraries before and after, and finds a change that is not in this table.

"Of" is a module, or a class as `module:Class`; `*` stands for any text. "By" is the module of ours that replaces the
attribute; one that several modules replace has a row for each. Written by
`python -m ipu_tf._patches.document > docs/patches.md`."""


def document() -> str:
    """The text of `docs/patches.md`."""
    parts = [_HEAD, *(_section(when) for when in When)]
    return "\n\n".join(parts) + "\n"


def _section(when: When) -> str:
    rows: dict[tuple[str, str, str], list[str]] = {}
    for patch in PATCHES:
        if patch.when is when:
            rows.setdefault((patch.owner, patch.why, patch.replacement), []).append(f"`{patch.attribute}`")
    lines = [f"| `{owner}` | {', '.join(names)} | {why} | `{ours}` |" for (owner, why, ours), names in rows.items()]
    head = [f"## When {when.value}", "", "| of | attributes | why | by |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *lines])


if __name__ == "__main__":
    print(document(), end="")
