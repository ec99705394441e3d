"""Lists, uninstalls and installs the patches that this project applies to TensorFlow, Keras and JAX.

A script that only adds the three lines changes what the table names under "imported" and "scope"; models made outside
a scope, and sessions without ops on IPUs, keep their stock behaviour. `docs/patches.md` has the whole table.
"""

from __future__ import annotations

import importlib
import sys

from ipu_tf._patches.installation import installed, uninstall_all
from ipu_tf._patches.patch import Patch, When
from ipu_tf._patches.table import PATCHES

__all__ = ["PATCHES", "Patch", "When", "install", "installed", "uninstall"]


def uninstall() -> None:
    """Removes every patch of TensorFlow, Keras, JAX and the import system; all are stock again.

    Models made in a scope can no longer be trained; entering a scope puts what models need on again, `install` what
    sessions and device scopes need.

    Raises:
        RuntimeError: if something else has replaced one of the attributes since.

    Example:
        >>> from ipu_tf import patches
        >>> [target for target, patch in patches.installed() if target.endswith("BaseSession.__init__")]
        ['tensorflow.python.client.session:BaseSession.__init__']
    """
    uninstall_all()


def install() -> None:
    """Installs the patches of importing `ipu_tf` and `tensorflow`. Calling it again changes nothing."""
    if "tensorflow" in sys.modules:
        importlib.import_module("ipu_tf._sessions.session_devices").install()
