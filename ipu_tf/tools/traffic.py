"""Entry points of `gc-hosttraffictest` and `gc-iputraffictest`: copies between host and JAX devices of this machine."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np

from ipu_tf.tools.commands import ipus_of

_BYTES = 1 << 26
_TIMES = 5
_LABEL = "measured on this machine between the host and JAX devices; no figure is one of IPU hardware"


def host_traffic(argv: Sequence[str] | None = None) -> None:
    """Runs `gc-hosttraffictest`: how fast arrays go from the host to the JAX device, and back.

    Args:
        argv: the command line after the name; that of this process by default.

    Raises:
        SystemExit: if the command line is wrong or asks for help.
    """
    given = _parsed("gc-hosttraffictest", argv)
    array, device = np.zeros(_BYTES, np.uint8), jax.devices()[0]
    there = jax.device_put(array, device)
    # On the CPU, JAX takes an aligned array of the host's as it is, whatever it is told; one of its own it copies.
    source = there if device.platform == "cpu" else array
    up = _rate(lambda: jax.block_until_ready(jax.device_put(source, device, may_alias=False)))
    down = _rate(lambda: np.array(there))
    _print(given.json, {"host to device GB/s": up, "device to host GB/s": down, "device": str(device)})


def ipu_traffic(argv: Sequence[str] | None = None) -> None:
    """Runs `gc-iputraffictest`: how fast arrays go from one JAX device to another; arguments as for `host_traffic`.

    Raises:
        SystemExit: if the command line is wrong or asks for help, or there is one JAX device only.
    """
    given = _parsed("gc-iputraffictest", argv)
    devices = jax.devices()
    if len(devices) == 1:
        sys.exit("gc-iputraffictest: all emulated IPUs are on one JAX device here, so nothing goes between devices.")
    array = jax.device_put(np.zeros(_BYTES, np.uint8), devices[0])
    rate = _rate(lambda: jax.block_until_ready(jax.device_put(array, devices[1])))
    _print(given.json, {"device to device GB/s": rate, "devices": f"{devices[0]}, {devices[1]}"})


def _rate(copy: Callable[[], object]) -> float:
    """Returns the bytes a second of the fastest of some copies, in GB/s."""
    copy()
    seconds = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        copy()
        seconds.append(time.perf_counter() - start)
    return round(_BYTES / max(min(seconds), 1e-9) / 1e9, 3)


def _print(as_json: bool, found: dict[str, object]) -> None:
    found["note"] = _LABEL
    print(json.dumps(found) if as_json else "\n".join(f"{name}: {value}" for name, value in found.items()))


def _parsed(name: str, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=name, description=f"Copies arrays: {_LABEL}.", allow_abbrev=False)
    parser.add_argument("-d", "--device-id", type=int, default=0, help="id of a device; all are alike here")
    parser.add_argument("-j", "--json", action="store_true", help="as JSON")
    given = parser.parse_args(argv)
    ipus_of(given.device_id, parser)
    return given
