"""Stand-in for `popef`, Graphcore's reader of its executable files: refuses every call, as there are no such files."""

from __future__ import annotations

from ipu_tf.emulation import EmulationError


class Reader:
    """Reader of popef files, which emulation does not write.

    Raises:
        EmulationError: always.
    """

    def __init__(self) -> None:
        raise EmulationError(
            "popef.Reader: a popef holds code for IPU hardware, which an emulated IPU neither runs nor writes. "
            "Executables of ipu_tf are of an open format, which JAX alone reads: see "
            "ipu_tf/device/files/executable_file.py."
        )
