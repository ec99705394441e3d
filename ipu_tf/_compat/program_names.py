"""Installs Graphcore's module names and older TensorFlow and Keras names before a program imports anything."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from ipu_tf._compat.aliases import install_aliases, provide_checkout
from ipu_tf._compat.detect_tf1 import V1_MODULES, program_style
from ipu_tf._compat.keras_2_module import give_keras_2
from ipu_tf._compat.keras_in_graphs import patch_keras_in_graphs
from ipu_tf._compat.program_files import ProgramFiles
from ipu_tf._compat.removed_names import add_removed_names
from ipu_tf._compat.tf1_module import give_tensorflow_1
from ipu_tf._compat.tf1_names import (
    add_layers_modules,
    add_tf1_names,
    add_tf1_names_to_keras,
    disable_v2_behavior,
    patch_dimensions,
    patch_functional_ops,
    patch_variables,
)
from ipu_tf._config.default_rules import use_one_ipu_by_default
from ipu_tf._patches.import_hooks import after_import
from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device import environment

_provided = register_state("names for programs", ProcessValue(False), kept="patches stay")


def provide_names() -> None:
    """Installs Graphcore's module names and the patches for older TensorFlow and Keras names, once. Imports neither."""
    if _provided.value:
        return
    _provided.value = True
    install_aliases()
    add_removed_names()
    patch_keras_in_graphs()
    after_import("tensorflow.python.ops.functional_ops", patch_functional_ops)
    after_import("tensorflow.python.ops.resource_variable_ops", patch_variables)
    for v1 in sorted(V1_MODULES):
        after_import(v1, add_layers_modules)
    use_one_ipu_by_default()


def prepare(script: Path, root: Path | None = None) -> None:
    """Makes Graphcore's modules importable, and switches TensorFlow 1 behaviour on for a script that needs it.

    TensorFlow is not imported here: the script may set environment variables before it imports it.

    Args:
        script: the script's file.
        root: another folder than its own that it imports modules from.

    Raises:
        OSError: the script cannot be read.
        SyntaxError: the script is not Python.
        ValueError: `IPU_TF_TENSORFLOW` is neither 1 nor 2.
    """
    provide_names()
    provide_checkout(script)
    style = program_style(script, root)
    asked = environment.tensorflow_version()
    if asked is not None:
        style = dataclasses.replace(style, tf1=asked == 1, former=asked == 1)
    files = ProgramFiles(script, root, environment.python_path_folders())
    if style.former:
        give_tensorflow_1(files)
    if environment.legacy_keras() or environment.LEGACY_KERAS in script.read_text("utf-8", "replace"):
        give_keras_2(files)
    if style.tf1:
        after_import("tensorflow", add_tf1_names)
        after_import("keras", add_tf1_names_to_keras)
        after_import("tensorflow.python.framework.tensor_shape", patch_dimensions)
        if not style.settles:
            after_import("tensorflow", disable_v2_behavior)


def prepare_child() -> None:
    """Prepares a child process of a launched program for its script, if the environment requests it.

    Where multiprocessing started it that is the program's own script.
    """
    # Where they are provided, the process runs the launcher itself.
    if _provided.value or not environment.aliases_enabled():
        return
    provide_names()
    main = sys.modules.get("__mp_main__", sys.modules["__main__"])
    script, spec = Path(getattr(main, "__file__", None) or "").absolute(), getattr(main, "__spec__", None)
    if script.is_file():
        within = spec.name.count(".") if spec is not None else 0  # folders of packages, below that of the imports
        prepare(script, script.parents[within] if spec is not None else None)
