"""Installs Graphcore's module names and older TensorFlow and Keras names before a program imports anything."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from ipu_tf._compat.aliases import install_aliases, provide_checkout
from ipu_tf._compat.detect_tf1 import V1_MODULES, program_style
from ipu_tf._compat.keras_in_graphs import bridge_keras
from ipu_tf._compat.removed_names import bridge_former_names
from ipu_tf._compat.tf1_names import (
    bridge_dimensions,
    bridge_functional_ops,
    bridge_layers,
    bridge_tf1_names,
    bridge_variables,
    disable_v2_behavior,
)
from ipu_tf._patches.import_hooks import after_import
from ipu_tf.device import environment


@functools.cache
def provide_names() -> None:
    """Installs Graphcore's module names and the patches for older TensorFlow and Keras names. Imports neither."""
    install_aliases()
    bridge_former_names()
    bridge_keras()
    after_import("tensorflow.python.ops.functional_ops", bridge_functional_ops)
    after_import("tensorflow.python.ops.resource_variable_ops", bridge_variables)
    for v1 in sorted(V1_MODULES):
        after_import(v1, bridge_layers)
    after_import("ipu_tf._config.state", lambda module: module.use_one_ipu_by_default())


def prepare(script: Path, root: Path | None = None) -> None:
    """Makes Graphcore's modules importable, and switches TensorFlow 1 behaviour on for a script that needs it.

    TensorFlow is not imported here: the script may set environment variables before it imports it.

    Args:
        script: the script's file.
        root: another folder than its own that it imports modules from.

    Raises:
        OSError: the script cannot be read.
        SyntaxError: the script is not Python.
    """
    provide_names()
    provide_checkout(script)
    style = program_style(script, root)
    if style.tf1:
        after_import("tensorflow", bridge_tf1_names)
        after_import("tensorflow.python.framework.tensor_shape", bridge_dimensions)
        if not style.settles:
            after_import("tensorflow", disable_v2_behavior)


def prepare_child() -> None:
    """Prepares a child process of a launched program for its script, if the environment requests it.

    Where multiprocessing started it that is the program's own script.
    """
    launched = provide_names.cache_info().currsize > 0  # the process runs the launcher itself
    if launched or not environment.gives_aliases():
        return
    provide_names()
    main = sys.modules.get("__mp_main__", sys.modules["__main__"])
    script = Path(getattr(main, "__file__", None) or "")
    if script.is_file():
        prepare(script.absolute())
