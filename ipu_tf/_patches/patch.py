"""`Patch`: one change to an attribute of another package, as data."""

from __future__ import annotations

import dataclasses
import enum
import fnmatch
from collections.abc import Iterable


class When(enum.Enum):
    """Event that installs a patch."""

    IMPORT = "`ipu_tf` and `tensorflow` are imported"
    SCOPE = "the scope of an `IPUStrategy` is entered for the first time"
    USE = "the feature is used for the first time"
    TESTING = "`ipu_tf.test_utils` is imported"
    ALIASES = "`install_aliases()` is called, or a script runs under `python -m ipu_tf`"
    LAUNCHER = "a script runs under `python -m ipu_tf`"


@dataclasses.dataclass(frozen=True)
class Patch:
    """A change to another package.

    Attributes:
        target: the attribute, as `module:Class.attribute`. In the module `*` and `[ab]` match as in file names.
        when: what installs it.
        why: what would not work without it.
        replacement: the module of ours that replaces it; `*` matches as in the target. A target that several modules
            replace has an entry for each.
    """

    target: str
    when: When
    why: str
    replacement: str

    def covers(self, target: str, replacement: str) -> bool:
        """Returns whether a target, replaced by a module of ours, is the one of this entry.

        Example:
            >>> patch = Patch("keras.*:Model.fit", When.SCOPE, "", "keras_ipu.training")
            >>> patch.covers("keras.models:Model.fit", "keras_ipu.training")
            True
        """
        modules = fnmatch.fnmatchcase(replacement, self.replacement)
        return modules and fnmatch.fnmatchcase(target, self.target)

    @property
    def owner(self) -> str:
        """The module or class that has the attribute."""
        return self.target.removesuffix(self.attribute).rstrip(".:")

    @property
    def attribute(self) -> str:
        """The attribute's name."""
        return self.target.replace(":", ".").rpartition(".")[2]


def patches_of(owner: str, names: Iterable[str], when: When, why: str, replacement: str) -> tuple[Patch, ...]:
    """Entries for several attributes of a module or class; `owner` ends in `:` or `.`."""
    return tuple(Patch(f"{owner}{name}", when, why, replacement) for name in names)
