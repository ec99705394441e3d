"""`Patch`: one change to an attribute of another package, as data."""

from __future__ import annotations

import dataclasses
import enum
import fnmatch


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
        target: the attribute, as `module:Class.attribute`; `*` and `[ab]` match as in file names.
        when: what installs it.
        why: what would not work without it.
    """

    target: str
    when: When
    why: str

    def covers(self, target: str) -> bool:
        """Returns whether a target is the one of this entry.

        Example:
            >>> Patch("keras:Model.*", When.SCOPE, "").covers("keras:Model.fit")
            True
        """
        return fnmatch.fnmatchcase(target, self.target)
