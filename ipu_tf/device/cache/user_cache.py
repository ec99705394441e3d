"""Keeps compiled programs in the user's cache folder by default, as far as that changes nothing but the wait for them.

    ~/.cache/ipu_tf/executables/<hash>.emulated.poplar_exec        (XDG_CACHE_HOME instead of ~/.cache, if it is set)

A program is traced, planned and compiled as without the folder, so its results and its steps are the same, and what XLA
can write is kept. It cannot write programs that call oneDNN or the host, nor those whose intermediate results are in
several blocks: these are compiled in every process. `--executable_cache_path` asks for a folder where all are kept.

`IPU_TF_CACHE=0` switches it off. The folder is bounded: entries that were not used for longest are removed.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import jax

from ipu_tf._state.once import first_time
from ipu_tf.device import environment
from ipu_tf.device.cache import cache_folder
from ipu_tf.device.cache.cache_folder import CacheFolderError
from ipu_tf.device.cache.cached_compilation import compile_cached
from ipu_tf.device.cache.sealed_file import UntrustedFile

LIMIT = 2**30
"""Bytes of entries above which the least recently used are removed."""
_SHARE = 4
"""The code of one program may have `LIMIT` by this: one that is larger would take the place of all others."""
_log = logging.getLogger("ipu_tf")


def user_folder() -> Path | None:
    """Returns the user's cache folder, made if it is missing; None if programs are not kept there.

    They are not if `IPU_TF_CACHE` is 0, if JAX's own compilation cache is on, or, with a warning, if the folder cannot
    be used.

    Raises:
        ValueError: if `IPU_TF_CACHE` is neither 0 nor 1.
    """
    in_jax = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if in_jax or not environment.keeps_executables():
        return None
    try:
        folder = environment.user_cache_folder() / "ipu_tf" / "executables"
        cache_folder.prepare(folder)
        _check_permitted(folder)
    except (CacheFolderError, UntrustedFile, RuntimeError) as error:
        if first_time("user's cache folder"):
            _log.warning("ipu_tf: compiled programs are not kept; IPU_TF_CACHE=0 asks for that. %s", error)
        return None
    return folder


def _check_permitted(folder: Path) -> None:
    """Checks that this user may use the folder: after a run with sudo it is root's.

    Raises:
        CacheFolderError: if they may not.
    """
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise CacheFolderError(
            f"This user must be able to read and write the folder of the executable cache. Received: '{folder}', "
            f"owned by user {folder.stat().st_uid}. Remove it, or take it over with `sudo chown -R`."
        )


class KeptCompilation:
    """Compiles lowered functions through the user's cache folder, for `jax.jit` to find.

    Args:
        directory: the folder.
        devices: the JAX devices that the functions run on; by default the first.
    """

    def __init__(self, directory: Path, devices: tuple[Any, ...] = ()) -> None:
        self._directory = directory
        self._devices = devices or tuple(jax.local_devices()[:1])
        self._compiled = True

    def __call__(self, lowered: Any) -> Any:
        """Compiles or loads a `jax.stages.Lowered`, and returns that; the jitted function that it is of then calls it.

        A program that can be kept, and has at most a quarter of `LIMIT`, is then in the folder, which is brought below
        `LIMIT`.
        """
        compiled = compile_cached(lowered, self._directory, self._devices, by_default=True, largest=LIMIT // _SHARE)
        self._compiled = not compiled.loaded
        if compiled.stored:
            cache_folder.evict(self._directory, LIMIT)
        return compiled.function

    def take_compiled(self) -> bool:
        """Returns whether anything was compiled since the last call of this method."""
        compiled, self._compiled = self._compiled, False
        return compiled
