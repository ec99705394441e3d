"""`PoplarExecutableProto`: description of a program in an executable file, under the field names that tests read."""

from __future__ import annotations

import dataclasses

from ipu_tf.device.files.executable_about import Signature, parsed, signature_of


@dataclasses.dataclass
class EmbeddedRuntimeConfig:
    """Description of a program for the embedded runtime.

    Attributes:
        signature: what the program takes and gives.
    """

    signature: Signature = dataclasses.field(default_factory=lambda: Signature((), (), (), ()))


class PoplarExecutableProto:
    """A stand-in for Graphcore's message that reads this project's own description of a program.

    Attributes:
        embedded_runtime_config: holds the program's signature.
    """

    def __init__(self) -> None:
        self.embedded_runtime_config = EmbeddedRuntimeConfig()

    def ParseFromString(self, serialized: bytes) -> int:  # noqa: N802 - the message's name for it
        """Parses a description, as `embedded_runtime` reads it from a file; returns its length."""
        self.embedded_runtime_config = EmbeddedRuntimeConfig(signature_of(parsed(serialized)))
        return len(serialized)
