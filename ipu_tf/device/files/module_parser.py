"""Parses StableHLO modules from files in a child process, which may crash where this one must not.

jaxlib's parser of StableHLO bytecode is not made for hostile input: some forged modules damage the memory of their
process or end it. The child has jaxlib alone, starts in a fifth of a second of processor time, parses each module in a
fork of its own, and ends when it was not asked for a while. What it gives back is the module as jaxlib wrote it anew,
and nothing else is parsed here. Modules that this process exported itself need no child.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
from typing import Any

from ipu_tf._state.registry import register_state
from ipu_tf.device.errors import DeviceError
from ipu_tf.device.files import exported_module
from ipu_tf.device.files.exported_module import Array, ExportedOp

_IDLE_SECONDS = 5.0
# As `runpy` does it, with this process's `sys.path`: no site, no environment, no packages of this project.
_START = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv.pop()); runpy.run_path(sys.argv[1], {}, '__main__')"
)


class ParserCrashed(ValueError):
    """Raised if a module ends the process that parses it, or takes it more time or memory than there is for it."""


class ModuleParser:
    """Parses modules in a child process, which starts when it is needed, for one thread at a time."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._known: set[bytes] = set()
        self._lock = threading.Lock()

    def know(self, artifact: bytes) -> None:
        """Records a module that is parsed in this process from now on."""
        self._known.add(hashlib.sha256(artifact).digest())

    def parsed(self, artifact: bytes) -> tuple[list[ExportedOp], bytes]:
        """Lists every operation of a module, as `exported_module.operations` does, and returns the module to load.

        Args:
            artifact: as `jax.export` has it in `Exported.mlir_module_serialized`.

        Raises:
            ValueError: if it is none, or not of the form that JAX makes.
            ParserCrashed: if it ends the parser, or takes too much time or memory.
            DeviceError: if the child process cannot be started.
        """
        if hashlib.sha256(artifact).digest() in self._known:
            return exported_module.operations(artifact), artifact
        with self._lock:
            # A child that was idle for long may end at this moment.
            answer, module = self._asked(artifact) or self._asked(artifact) or ({"crash": -1}, b"")
        if "crash" in answer:
            raise ParserCrashed(f"it ends the process that parses it (status {answer['crash']})")
        if "error" in answer:
            raise ValueError(answer["error"])
        return [_operation(*fields) for fields in answer["operations"]], module

    def clear(self) -> None:
        """Ends the child process, if there is one, and forgets this process's own modules."""
        self._known.clear()
        self._end_child()

    def _end_child(self) -> None:
        if self._child is not None and self._pid == os.getpid():
            for pipe in (self._child.stdin, self._child.stdout):
                with contextlib.suppress(BrokenPipeError):  # what it never read is dropped
                    pipe.close()  # type: ignore[union-attr]
            self._child.wait()  # it ends where its input does
        self._child = None

    def _asked(self, artifact: bytes) -> tuple[dict[str, Any], bytes] | None:
        """Returns the child's answer; None if it ended without one."""
        child = self._running()
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(len(artifact).to_bytes(8, "little") + artifact)
            child.stdin.flush()
            line = child.stdout.readline()
            if line.endswith(b"\n"):
                answer = json.loads(line)
                return answer, child.stdout.read(answer["length"])
        except BrokenPipeError:
            pass
        self._end_child()
        if child.returncode > 0:
            what = f"ended with status {child.returncode}: {child.args!r}"
            raise DeviceError(f"The process that parses programs from files {what}.")
        return None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._pid == os.getpid() and self._child.poll() is None:
            return self._child
        self._end_child()
        script = [exported_module.__file__, str(_IDLE_SECONDS)]
        command = [sys.executable, "-I", "-S", "-c", _START, *script, json.dumps([each for each in sys.path if each])]
        try:
            pipe = subprocess.PIPE
            self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        except OSError as error:
            raise DeviceError(f"Programs from files are parsed in a process of {command[0]}: {error}.") from error
        self._pid = os.getpid()
        return self._child


PARSER = register_state("parser of modules from files", ModuleParser())
"""The parser of this process."""
atexit.register(PARSER.clear)


def _operation(name: str, target: str, api: int, operands: Any, results: Any, settings: Any) -> ExportedOp:
    taken, given = (tuple(Array(dtype, tuple(shape)) for dtype, shape in each) for each in (operands, results))
    return ExportedOp(name, target, api, taken, given, tuple((key, value) for key, value in settings))
