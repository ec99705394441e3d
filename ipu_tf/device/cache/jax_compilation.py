"""Compiles a `jax.stages.Lowered` with a user-supplied step from StableHLO to XLA executable.

    jax.stages.Lowered ──► StableHLO, compile options ──► XLA executable ──► jax.stages.Compiled
                                        made by a `Compilation` ─┘

Shapes, shardings, donated arguments and trees are JAX's own, from the lowered function: only the executable may come
from elsewhere. JAX has no public interface for that but `jax.experimental.serialize_executable`, which unpickles all
of them. This file uses JAX's private API; `tests/project/test_private_api.py` watches it.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from typing import Any

from jax._src import config
from jaxlib.mlir import ir
from jaxlib.mlir.passmanager import PassManager


def trace_context() -> Any:
    """Returns the settings of JAX in this thread by which its caches of traced and compiled functions are looked up."""
    return config.trace_context()


def trace_settings() -> list[Any]:
    """Returns the same settings as values with a text each; axes are left out: programs are traced outside of any."""
    return [each for each in config.trace_context() if type(each).__name__ != "AxisEnv"]


def bytecode_of(lowered: Any, with_names: bool = False) -> bytes:
    """Serializes the StableHLO module of a `jax.stages.Lowered` as MLIR bytecode.

    That costs a third of printing it, and not twice the memory of its constants.

    Args:
        lowered: the function.
        with_names: whether the names of its operations and the lines of its source are in it.
    """
    return module_bytecode(lowered.compiler_ir(), with_names)


def module_bytecode(module: Any, names: bool, symbol: str = "") -> bytes:
    """Serializes an MLIR module as bytecode.

    Args:
        module: the module.
        names: whether the names of its operations and the lines of its source are in it.
        symbol: a name for the module instead of its own; "" for that.
    """
    written = io.BytesIO()
    with module.context:
        copy = module.operation.clone()
        if not names:
            PassManager.parse("builtin.module(strip-debuginfo)").run(copy.operation)
        if symbol:
            copy.operation.attributes["sym_name"] = ir.StringAttr.get(symbol)
        copy.operation.write_bytecode(written)
    return written.getvalue()


@dataclasses.dataclass(frozen=True)
class Compilation:
    """Arguments of one compilation, as JAX passes them to XLA's client.

    Attributes:
        client: the backend's client.
        module: the StableHLO module.
        devices: the devices that the executable runs on.
        options: XLA's compile options.
    """

    client: Any
    module: Any
    devices: Any
    options: Any

    def compile(self) -> Any:
        """Compiles the module."""
        return self.client.compile_and_load(self.module, executable_devices=self.devices, compile_options=self.options)

    def load(self, code: bytes) -> Any:
        """Loads an executable that `code_of` serialized, without compiling. Its machine code is trusted.

        Raises:
            jax.errors.JaxRuntimeError: if XLA does not take it.
        """
        return self.client.deserialize_executable(code, executable_devices=self.devices, compile_options=self.options)

    def code_of(self, executable: Any) -> bytes:
        """Serializes an executable.

        Raises:
            jax.errors.JaxRuntimeError: if XLA cannot.
        """
        return bytes(self.client.serialize_executable(executable))

    @property
    def options_bytes(self) -> bytes:
        """Returns the compile options as serialized protocol buffer: equal for options that give the same code.

        JAX asks XLA for more logging of modules that have many operations; a stand-in for one has few.
        """
        debugging = self.options.executable_build_options.debug_options
        before, debugging.xla_detailed_logging = debugging.xla_detailed_logging, False
        try:
            return bytes(self.options.SerializeAsString())
        finally:
            debugging.xla_detailed_logging = before


class _Client:
    """Proxy of an XLA client with its compile method replaced."""

    def __init__(self, client: Any, executable_of: Callable[[Compilation], Any]) -> None:
        self._client = client
        self._executable_of: Callable[[Compilation], Any] | None = executable_of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def compile_and_load(self, module: Any, executable_devices: Any, compile_options: Any) -> Any:
        """Replaces the client's method; JAX passes host callbacks as third argument only to programs that have some."""
        assert self._executable_of is not None, "a client compiles once"
        return self._executable_of(Compilation(self._client, module, executable_devices, compile_options))

    def release(self) -> None:
        """Drops the function that compiles. What it refers to, JAX's executable, refers to this client, in a cycle
        that is never collected: every program would stay loaded.
        """
        self._executable_of = None


def compile_through(lowered: Any, executable_of: Callable[[Compilation], Any]) -> Any:
    """Returns `lowered.compile()` with an executable that `executable_of` compiles or loads.

    Args:
        lowered: a `jax.stages.Lowered` of a function without host callbacks.
        executable_of: compiles, or loads what was compiled before.

    Raises:
        Exception: what `executable_of` raises; ValueError or TypeError if the executable takes or gives other arrays
            than the lowered function.
    """
    lowering = lowered._lowering
    arguments = lowering.compile_args
    client = _Client(arguments["backend"], executable_of)
    lowering.compile_args = {**arguments, "backend": client}
    try:
        return lowered.compile()
    finally:
        lowering.compile_args = arguments
        client.release()
