"""Freed memory is kept for the next execution."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ipu_tf.device import environment

# A subprocess, because a process that has kept memory goes on doing so.
PROGRAM = """
import ctypes, json, resource, sys
import numpy as np
from ipu_tf.device.memory.malloc_options import keep_freed_memory

kept = keep_freed_memory()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(64 * 2**20, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

json.dump([kept, [faults() for _ in range(4)]], sys.stdout)
"""


COMPILER = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from ipu_tf.device.memory.malloc_options import keep_freed_memory

keep_freed_memory()

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4 // 1024

pieces = [np.ones(100_000, np.uint8) for _ in range(2000)]
pieces = pieces[::500]
sizes = [resident()]
for seconds in (0.01, 5.0):
    jax.monitoring.record_event_duration_secs("/jax/core/compile/backend_compile_duration", seconds)
    sizes.append(resident())
heard = []
jax.monitoring.register_event_duration_secs_listener(lambda event, duration_secs, **about: heard.append(event))
jax.jit(lambda x: x + 1)(jnp.ones(3))
json.dump([sizes, "/jax/core/compile/backend_compile_duration" in heard], sys.stdout)
"""

LARGE = """
import json, resource, sys
from ipu_tf.device.memory.malloc_options import keep_freed_memory, keep_large_blocks, memory_options

keep_large_blocks() if sys.argv[1:] == ["one heap"] else keep_freed_memory()

import jax, jax.numpy as jnp

def large(x):
    terms = []
    for _ in range(5):
        x = jax.lax.optimization_barrier(x + 1)
        terms.append(x)
    return sum(term.sum() for term in jax.lax.optimization_barrier(terms))

x = jnp.zeros(5 * 2**20)
found = {}
for name, options in (("several", memory_options()), ("one", {})):
    run = jax.jit(large, compiler_options=options)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        run(x).block_until_ready()
    found[name] = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
json.dump(found, sys.stdout)
"""


def faults_of_programs(*heaps: str) -> dict[str, int]:
    """Page faults of 20 executions with 100 MiB of intermediate results, in one block and in several."""
    ran = subprocess.run([sys.executable, "-c", LARGE, *heaps], capture_output=True, text=True, check=True)
    faults: dict[str, int] = json.loads(ran.stdout)
    return faults


def faults_of_blocks(keep: str) -> tuple[bool, list[int]]:
    """Whether memory is kept, and the page faults of four blocks of 64 MiB, one after the other."""
    variables = {**os.environ, "IPU_TF_KEEP_MEMORY": keep}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True, check=True)
    kept, faults = json.loads(ran.stdout)
    return kept, faults


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's; elsewhere nothing is changed")
def test_a_block_is_had_again_without_new_pages() -> None:
    kept, faults = faults_of_blocks("1")
    assert kept
    assert max(faults[1:]) < 64 < faults[0]
    kept, faults = faults_of_blocks("0")
    assert not kept
    assert min(faults) > 16


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's; elsewhere nothing is changed")
def test_what_the_compiler_has_freed_is_given_back() -> None:
    ran = subprocess.run([sys.executable, "-c", COMPILER], capture_output=True, text=True, check=True)
    (before, short, long), told = json.loads(ran.stdout)
    assert told, "JAX does not tell of compilations by this name any more: see `ipu_tf/device/memory/malloc_options.py`"
    assert abs(before - short) < 20
    assert short - long > 150


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's; elsewhere nothing is changed")
def test_intermediate_results_of_more_than_a_heap_are_kept() -> None:
    """100 MiB in one block are mapped anew by each execution; in several, once for each thread that runs any.

    If `one` is small too, nothing has to be done any more.
    """
    found = faults_of_programs()
    assert 3 * found["several"] < found["one"] > 100_000, found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's; elsewhere nothing is changed")
def test_threads_that_share_a_heap_keep_blocks_of_any_size() -> None:
    """Programs on disk have one block."""
    shared, apart = faults_of_programs("one heap"), faults_of_programs()
    assert 3 * shared["one"] < apart["one"], (shared, apart)


def test_other_settings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPU_TF_KEEP_MEMORY", "yes")
    with pytest.raises(ValueError, match="IPU_TF_KEEP_MEMORY must be 0 or 1. Received: 'yes'."):
        environment.keeps_freed_memory()
    monkeypatch.delenv("IPU_TF_KEEP_MEMORY")
    assert environment.keeps_freed_memory()
