"""Sets malloc options (`mallopt`) that keep freed memory for the next execution, and limits XLA's heap blocks.

An execution needs memory for intermediate results, tens of megabytes for a small convolutional network, and frees it
at its end. The C library returns blocks of that size to the system at once and allocates them again for the next
execution, and the system clears every page of them on first use: a quarter of the time of a training step, measured
where an execution is one step.

It keeps a block only as large as one of the heaps that it makes for threads, 64 MiB, and programs run in JAX's threads:
so intermediate results are laid out in several blocks that are smaller.

A program that is kept on disk has one block, of any size. `keep_large_blocks` has threads share the process's first
heap, which knows no such limit.

Memory that the compiler has freed is returned to the system when a program is compiled, before it runs: hundreds of
megabytes, in pieces, of which programs use little.
"""

from __future__ import annotations

import ctypes
from typing import Any

import jax

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.environment import keeps_freed_memory
from ipu_tf.device.jax_events import listen

# The parameters of glibc's mallopt (malloc.h): when to trim the heap, how much to ask for, how many blocks to map, and
# how many heaps there are.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8
_NEVER = 2**31 - 1
_AT_ONCE = 64 * 2**20
#: Bytes of intermediate results that are laid out in one block; a larger one has a block of its own. Less than a heap,
#: which holds malloc's own data and smaller arrays too; but large, since XLA cannot write several blocks to disk.
_BLOCK = 56 * 2**20
_COMPILED = "/jax/core/compile/backend_compile_duration"
#: Compilations shorter than this leave little, and looking for it takes a millisecond.
_LONG_SECONDS = 0.3


_keeps = register_state(
    "whether malloc keeps freed memory", ProcessValue[bool | None](None), kept="malloc keeps its options"
)


def keep_freed_memory() -> bool:
    """Sets malloc options, once, so that the C library keeps freed memory for later allocations.

    The process stays as large as its peak. With the environment variable `IPU_TF_KEEP_MEMORY=0`,
    and with C libraries other than glibc, nothing is changed.

    Returns:
        Whether memory is kept now.
    """
    if _keeps.value is None:
        _keeps.value = _set_options()
    if _keeps.value:
        listen(_trim)
    return _keeps.value


def _set_options() -> bool:
    library = ctypes.CDLL(None)
    mallopt = getattr(library, "mallopt", None)
    if mallopt is None or not hasattr(library, "malloc_trim") or not keeps_freed_memory():
        return False
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _NEVER), (_M_TOP_PAD, _AT_ONCE))
    return all(mallopt(parameter, value) == 1 for parameter, value in settings)


def keep_large_blocks() -> bool:
    """Has threads that begin from now on share one heap, which keeps freed blocks of any size.

    Threads wait for each other there: compiling MobileNetV2 takes two cores 12.5 s, and 10 to 12 without.

    Returns:
        Whether they do; not where memory is not kept.
    """
    return keep_freed_memory() and ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1) == 1


def _trim(event: str, duration_secs: float, **about: str | int) -> None:
    """Returns memory that the compiler has freed to the system."""
    if event == _COMPILED and duration_secs > _LONG_SECONDS:
        ctypes.CDLL(None).malloc_trim(0)


def memory_options() -> dict[str, Any]:
    """Returns compiler options for `jax.jit` that split a program's memory into blocks that malloc keeps when freed.

    Not for compiled code that is written to files, as JAX's own cache does: XLA cannot serialize such.
    """
    in_files = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if jax.default_backend() != "cpu" or in_files or not keep_freed_memory():
        return {}
    return {"xla_multiheap_size_constraint_per_heap": _BLOCK}
