"""JAX's compilation of a lowered function, with the step between StableHLO and an XLA executable in other hands.

    jax.stages.Lowered ──► StableHLO, compile options ──► XLA executable ──► jax.stages.Compiled
                                        a `Compilation` gives it ──┘

Shapes, shardings, donated arguments and trees are JAX's own, from the lowered function: only the executable may come
from elsewhere. JAX has no public interface for that but `jax.experimental.serialize_executable`, which unpickles all
of them. This file reaches beyond the public interface; `tests/project/test_private_api.py` watches it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Compilation:
    """One compilation as JAX asks XLA's client for it.

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
        """Loads an executable that `code_of` serialized, in place of compiling. Its machine code is trusted.

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
        """The compile options as the bytes of a protocol buffer: equal for equal options."""
        return bytes(self.options.SerializeAsString())


class _Client:
    """An XLA client, but for how it compiles."""

    def __init__(self, client: Any, executable_of: Callable[[Compilation], Any]) -> None:
        self._client = client
        self._executable_of = executable_of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def compile_and_load(self, module: Any, executable_devices: Any, compile_options: Any) -> Any:
        """Called by JAX: there is no third argument, of host callbacks, for programs that have none."""
        return self._executable_of(Compilation(self._client, module, executable_devices, compile_options))


def compile_through(lowered: Any, executable_of: Callable[[Compilation], Any]) -> Any:
    """What `lowered.compile()` gives, with an executable from elsewhere.

    Args:
        lowered: a `jax.stages.Lowered` of a function that calls nothing on the host.
        executable_of: compiles, or loads what was compiled before.

    Raises:
        Exception: what `executable_of` raises; ValueError or TypeError if the executable takes or gives other arrays
            than the lowered function.
    """
    lowering = lowered._lowering
    arguments = lowering.compile_args
    lowering.compile_args = {**arguments, "backend": _Client(arguments["backend"], executable_of)}
    try:
        return lowered.compile()
    finally:
        lowering.compile_args = arguments
