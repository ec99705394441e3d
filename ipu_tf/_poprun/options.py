"""Options of `poprun`: one table of what each takes, its default, and what it does here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

BOOLEANS = {"1": True, "yes": True, "true": True, "0": False, "no": False, "false": False}
"""Texts of booleans, in small letters."""


def boolean(text: str) -> bool:
    """Parses yes, no, 1 or 0, as `poprun` takes them.

    Raises:
        ValueError: for another text.
    """
    if text.lower() in BOOLEANS:
        return BOOLEANS[text.lower()]
    raise ValueError(f"must be yes, no, 1 or 0. Received: {text!r}")


def positive(text: str) -> int:
    """Parses a whole number from 1 on.

    Raises:
        ValueError: for another text.
    """
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise ValueError(f"must be a whole number, 1 or more. Received: {text!r}")


def index(text: str) -> int:
    """Parses a whole number from 0 on.

    Raises:
        ValueError: for another text.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    raise ValueError(f"must be a whole number, 0 or more. Received: {text!r}")


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of the command line.

    Attributes:
        name: with its two dashes.
        help: what it does.
        parse: makes the value of the text.
        default: the value without the option.
        short: another name, such as `-H`.
        no_effect: why it changes nothing here; empty if it does.
        refused: why it is refused; empty if it is not.
        flag: whether it takes no value.
    """

    name: str
    help: str
    parse: Callable[[str], Any] = str
    default: Any = None
    short: str = ""
    no_effect: str = ""
    refused: str = ""
    flag: bool = False

    @property
    def key(self) -> str:
        """Returns its name as an attribute."""
        return self.name.lstrip("-").replace("-", "_")


_NO_SERVER = "no V-IPU server is asked: IPUs are emulated in each instance"

OPTIONS = (
    Option("--host", "hosts to start instances on: host0,host1 or host[0-2,4]", short="-H"),
    Option("--hostfile", "a file with one host a line, in place of --host"),
    Option("--num-instances", "how many processes run the program", positive, 1),
    Option("--num-replicas", "how many replicas all instances have together", positive, 1),
    Option("--ipus-per-replica", "how many IPUs a replica has", positive, 1),
    Option("--executable-cache-path", "folder in which compiled programs are kept"),
    Option("--only-output-from-instance", "show the output of this instance alone", index),
    Option("--print-topology", "print which instance and replicas are on which host", boolean, False),
    Option("--mpi-global-args", "options for mpirun: -x is followed, others are reported", default=""),
    Option("--mpi-local-args", "the same, for each instance", default=""),
    Option("--import-config", "file to read options from; the command line comes before it"),
    Option("--export-config", "file to write the options to, as JSON"),
    Option("--overwrite-config", "whether that file may exist already", boolean, False),
    Option("--verbose", "print what is started", boolean, False, "-v", flag=True),
    Option("--vv", "print the instances' variables as well", boolean, False, "-vv", flag=True),
    Option("--num-ilds", "how many IPU-Link domains", positive, no_effect="emulated IPUs have no links"),
    Option("--vipu-server-host", "host of the V-IPU server", default="localhost", no_effect=_NO_SERVER),
    Option("--vipu-server-port", "its port", positive, 8090, no_effect=_NO_SERVER),
    Option("--vipu-server-timeout", "for how many seconds to wait for it", positive, 120, no_effect=_NO_SERVER),
    Option("--vipu-partition", "partition to create or use", no_effect=_NO_SERVER),
    Option("--vipu-partition-attempts", "attempts to bind to it", positive, 1, no_effect=_NO_SERVER),
    Option("--vipu-cluster", "cluster of the partition", no_effect=_NO_SERVER),
    Option("--vipu-allocation", "allocation of the partition", no_effect=_NO_SERVER),
    Option("--update-partition", "whether to update it", boolean, False, no_effect=_NO_SERVER),
    Option("--reset-partition", "whether to reset it", boolean, no_effect=_NO_SERVER),
    Option("--remove-partition", "whether to remove it", boolean, True, no_effect=_NO_SERVER),
    Option(
        "--numa-aware",
        "bind instances to NUMA nodes",
        boolean,
        False,
        no_effect="the system schedules the instances; results are the same",
    ),
    Option(
        "--offline-mode",
        "run without IPUs",
        boolean,
        False,
        refused="IPUs are emulated, none is attached. To compile only, set `config.device_connection.type` to "
        "`DeviceConnectionType.PRE_COMPILE` in the program",
    ),
)
"""Every option but `--help` and `--version`."""
