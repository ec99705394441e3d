"""Finds the line of the user's program that created an op, for error messages.

script.py ─► Keras ─► layer.call (user) ─► tf.boolean_mask ─► op        the line in `layer.call` is shown
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import linecache
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

#: Packages whose frames are never user code.
_LIBRARIES = ("tensorflow", "keras", "tf_keras", "jax", "jaxlib", "ipu_tf", "keras_ipu")
_INSTALLED = ("site-packages", "dist-packages")
_MADE_UP = ("<frozen ", "<__array_function__", "<attrs ", "<decorator-gen")

Frame = tuple[str, int, str]
"""A frame of a stack: file, line number from 1, name of the function."""


@dataclasses.dataclass(frozen=True)
class SourceLine:
    """A line of a source file, printed as in Python's tracebacks.

    Attributes:
        file: path of the file.
        line: number of the line, from 1.
        function: the function that it is in.
    """

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.line).strip()
        function = self.function or "<lambda>"  # AutoGraph leaves out the name of a lambda
        return f'File "{self.file}", line {self.line}, in {function}' + (f"\n  {text}" if text else "")


def user_lines(frames: Iterable[Frame]) -> tuple[SourceLine, ...]:
    """Returns the innermost frame outside of TensorFlow, Keras, JAX, this package and Python's library, if any.

    Where that lies in another installed package, the innermost frame outside of all packages comes second.

    Args:
        frames: a stack, outermost frame first.
    """
    own = [frame for frame in frames if is_user_code(frame[0])]
    found = own[-1:]
    if found and _installed(found[0][0]):
        found += [frame for frame in own if not _installed(frame[0])][-1:]
    return tuple(SourceLine(*frame) for frame in found)


def lines_of_stack() -> tuple[SourceLine, ...]:
    """Returns the user's source lines, as `user_lines`, of the call that is being made."""
    return user_lines(stack_frames())


def stack_frames() -> list[Frame]:
    """Returns the frames of the call that is being made, outermost first."""
    stack = [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in traceback.walk_stack(None)]
    return stack[::-1]


def traceback_frames(raised: TracebackType | None) -> Iterator[Frame]:
    """Returns the frames of an exception's traceback, outermost first."""
    while raised is not None:
        code = raised.tb_frame.f_code
        yield code.co_filename, raised.tb_lineno, code.co_name
        raised = raised.tb_next


def indented(text: object, by: str = "    ") -> str:
    """Indents each line of a text."""
    return "\n".join(by + line for line in str(text).splitlines())


@functools.lru_cache(maxsize=4096)
def is_user_code(file: str) -> bool:
    """Returns whether a file lies outside of TensorFlow, Keras, JAX, this package and Python's library."""
    if file.startswith(_MADE_UP) or "__autograph_generated_file" in file:
        return False
    path = Path(file)
    if any(root in path.parents for root in _library_roots()):
        return False
    return _standard_library() not in path.parents or _installed(file)


def _installed(file: str) -> bool:
    return any(name in Path(file).parts for name in _INSTALLED)


@functools.cache
def _library_roots() -> tuple[Path, ...]:
    specs = filter(None, map(importlib.util.find_spec, _LIBRARIES))
    return tuple(Path(root) for spec in specs for root in spec.submodule_search_locations or ())


@functools.cache
def _standard_library() -> Path:
    return Path(sysconfig.get_paths()["stdlib"])
