"""Entry points of `gc-info`, `gc-inventory`, `gc-monitor`, `gc-reset`; tools for hardware say why they do nothing."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ipu_tf._config.attachments import remove_stale
from ipu_tf.device.environment import ipu_count
from ipu_tf.tools.attributes import device_attributes, ids
from ipu_tf.tools.listing import device_info, device_listing, monitor_tables

_EMULATED = "The IPUs are emulated on this machine (ipu_tf); no figure is one of IPU hardware."


def info(argv: Sequence[str] | None = None) -> None:
    """Runs `gc-info`.

    Args:
        argv: the command line after the name; that of this process by default.

    Raises:
        SystemExit: if the command line is wrong, or asks for help or for what only hardware has.
    """
    parser = _parser("gc-info", "Lists emulated IPUs and their attributes.")
    parser.add_argument("-d", "--device-id", type=int, metavar="ID", help="id of a device, as `select_ipus` takes it")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-l", "--list-devices", action="store_true", help="list the ids, with their IPUs")
    what.add_argument("-i", "--device-info", action="store_true", help="attributes of a device")
    what.add_argument("--ipu-count", action="store_true", help="how many IPUs a device, or the machine, has")
    what.add_argument("--ipu-arch", action="store_true", help="the architecture of the IPUs")
    what.add_argument("--tile-clock-speed", action="store_true", help="the clock of the tiles, which is not known")
    what.add_argument("--tile-overview", action="store_true", help="refused: emulated IPUs have no tiles")
    parser.add_argument("--all-partitions", action="store_true", help="there is one partition")
    given = parser.parse_args(argv)
    ipus = ipus_of(given.device_id, parser)
    if given.tile_overview:
        _refuse("gc-info --tile-overview", "an emulated IPU has no tiles")
    if given.list_devices:
        print(device_listing())
    elif given.device_info:
        if given.device_id is None:
            parser.error("--device-info wants a device: -d ID")
        attributes = device_attributes()
        print("\n".join(device_info(attributes[ipu]) for ipu in ipus))
    elif given.ipu_count:
        print(len(ipus))
    else:
        print(device_attributes([])[0]["ipu architecture" if given.ipu_arch else "clock"])


def inventory(argv: Sequence[str] | None = None) -> None:
    """Runs `gc-inventory`; arguments and errors as for `info`."""
    parser = _parser("gc-inventory", "Lists the attributes of all emulated IPUs.")
    parser.add_argument("-j", "--json", action="store_true", help="as JSON")
    given = parser.parse_args(argv)
    attributes = device_attributes()
    if given.json:
        print(json.dumps({"devices": attributes}, indent=2))
    else:
        print("\n".join(device_info(each) for each in attributes))


def monitor(argv: Sequence[str] | None = None) -> None:
    """Runs `gc-monitor`; arguments and errors as for `info`."""
    parser = _parser("gc-monitor", "Shows emulated IPUs and the processes of this user that use them.")
    parser.add_argument("--no-card-info", action="store_true", help="only the processes")
    parser.add_argument("--all-partitions", action="store_true", help="there is one partition")
    given = parser.parse_args(argv)
    print("\n".join(monitor_tables(cards=not given.no_card_info)))


def reset(argv: Sequence[str] | None = None) -> None:
    """Runs `gc-reset`, which forgets processes that are gone; arguments and errors as for `info`."""
    parser = _parser("gc-reset", "Forgets processes that used emulated IPUs and are gone.")
    parser.add_argument("-d", "--device-id", type=int, metavar="ID", required=True, help="id of a device")
    ipus_of(parser.parse_args(argv).device_id, parser)
    gone = remove_stale()
    said = f"forgot process {', '.join(map(str, gone))}, which is gone" if gone else "there is nothing to reset"
    print(f"gc-reset: {said}. {_EMULATED}")


def refused(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the tools that test or set up hardware: one sentence, and the exit status 1; `--help` says so with 0.

    Args:
        argv: the command line after the name; that of this process by default.

    Raises:
        SystemExit: always.
    """
    tool, why = Path(sys.argv[0]).name, "it tests or sets up hardware"
    _parser(tool, f"Does nothing here: {why}.").parse_known_args(argv)
    _refuse(tool, why)


def _refuse(tool: str, why: str) -> NoReturn:
    sys.exit(f"{tool}: {why}, and the IPUs are emulated on this machine.")


def _parser(name: str, about: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=name, description=f"{about} {_EMULATED}", allow_abbrev=False)


def ipus_of(index: int | None, parser: argparse.ArgumentParser) -> tuple[int, ...]:
    """Returns the IPUs of a device's id; all for None.

    Raises:
        SystemExit: if there is no such device.
    """
    known = ids()
    if index is None:
        return tuple(range(ipu_count()))
    if index not in known:
        parser.error(f"there are devices 0 to {len(known) - 1}; see gc-info -l. Received: {index}")
    return known[index]
