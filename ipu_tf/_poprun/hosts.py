"""Hosts of `--host`, `host0,host1` or `host[0-2,4]`, and the address of the first one."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from ipu_tf._poprun.ssh import address_of

_ITEM = re.compile(r"(?P<before>[^\[\],]*)\[(?P<numbers>[0-9,\-]+)\](?P<after>[^\[\],]*)|(?P<name>[^\[\],]+)")
_REMOTE_PORTS = range(20000, 30000)
"""Ports for the coordinator on another machine, where no free one can be looked for."""


def hosts_of(text: str) -> tuple[str, ...]:
    """Returns the hosts that a text lists.

    Raises:
        ValueError: for a text that lists none.

    Example:
        >>> hosts_of("front,node[0-1,4].local")
        ('front', 'node0.local', 'node1.local', 'node4.local')
    """
    found: list[str] = []
    at = 0
    while at < len(text):
        match = _ITEM.match(text, at)
        if match is None or text[match.end() : match.end() + 1] not in ("", ","):
            raise ValueError(f"must be hosts such as host0,host1 or host[0-2,4]. Received: {text!r}")
        found.extend([match["name"].strip()] if match["name"] else _numbered(match, text))
        at = match.end() + 1
    if not found or not all(found) or any(host.startswith("-") for host in found):
        raise ValueError(f"must be hosts such as host0,host1 or host[0-2,4]. Received: {text!r}")
    return tuple(found)


def hosts_in_file(path: str) -> tuple[str, ...]:
    """Returns the hosts that a file lists, one a line; what follows the first word, such as `slots=2`, is left out.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it lists none, or not as many slots for each.
    """
    lines = [line.partition("#")[0].split() for line in Path(path).read_text().splitlines()]
    slots = {next((word for word in words[1:] if word.startswith("slots=")), "slots=1") for words in lines if words}
    if len(slots) > 1:
        raise ValueError(
            "must have as many slots for each host, as instances are divided evenly: name a host twice to have twice "
            f"as many there. Received: {', '.join(sorted(slots))} in {path}"
        )
    return hosts_of(",".join(words[0] for words in lines if words))


def is_this_machine(host: str) -> bool:
    """Returns whether instances on a host are started without ssh."""
    return host in ("localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn())


def coordinator_address(hosts: Sequence[str]) -> str:
    """Returns an address `host:port` at which instance 0 can listen, as the others reach it.

    Args:
        hosts: of each instance.
    """
    if not is_this_machine(hosts[0]):
        return f"{address_of(hosts[0])}:{_REMOTE_PORTS[os.getpid() % len(_REMOTE_PORTS)]}"
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    alone = all(is_this_machine(host) for host in hosts)
    return f"{'127.0.0.1' if alone else socket.getfqdn()}:{port}"


def _numbered(match: re.Match[str], text: str) -> Iterator[str]:
    for part in match["numbers"].split(","):
        first, dash, last = part.partition("-")
        if not first or (dash and not last) or "-" in last or (dash and int(last) < int(first)):
            raise ValueError(f"has a wrong range {part!r}. Received: {text!r}")
        for number in range(int(first), int(last or first) + 1):
            yield f"{match['before']}{number:0{len(first)}}{match['after']}"
