"""Tells the user of a program that Keras 3 stopped how it runs with Keras 2."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import ModuleType

from ipu_tf._compat.program_files import ProgramFiles
from ipu_tf.device import environment

_HINT = (
    "ipu_tf: this is an error of Keras 3. If the program was written for Keras 2, as for TensorFlow 2.15 and older, "
    f"set {environment.LEGACY_KERAS}=1 (pip install tf_keras), which makes `tf.keras` Keras 2."
)
#: This project's packages, whose errors are not Keras's.
_OURS = {Path(__file__).parents[2] / name for name in ("ipu_tf", "keras_ipu")}
_NAMES_OF_KERAS = ("keras", "tensorflow.keras", "tensorflow.python.keras")


def hint_at_keras_2(error: Exception, files: ProgramFiles) -> None:
    """Adds a note to an error that Keras 3 raised at a program's call or import, unless it uses Keras 2.

    Args:
        error: that ended the program.
        files: of the program.
    """
    uses_keras_2 = environment.legacy_keras() or sys.modules.get("tf_keras") is not None
    if not uses_keras_2 and (_is_missing_name(error) or _is_kerass(error, files)):
        error.add_note(_HINT)


def _is_missing_name(error: Exception) -> bool:
    """Whether it is that of a module of Keras, or of a name in one, which there is not."""
    of = error.obj if isinstance(error, AttributeError) else error.name if isinstance(error, ImportError) else None
    name = of.__name__ if isinstance(of, ModuleType) else str(of)
    return any(name == root or name.startswith(f"{root}.") for root in _NAMES_OF_KERAS)


def _is_kerass(error: Exception, files: ProgramFiles) -> bool:
    """Whether the program called Keras, which raised the error, or a library that it called, but this project."""
    keras = getattr(sys.modules.get("keras"), "__file__", None)
    if keras is None:
        return False
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        folders = Path(frame.filename).parents
        if Path(keras).parent in folders:
            return True
        if files.holds(frame.filename) or _OURS.intersection(folders):
            return False
    return False
