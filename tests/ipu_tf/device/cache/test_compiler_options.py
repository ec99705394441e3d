"""XLA's options apply to everything that the device compiles, and not to user-defined JAX code."""

from __future__ import annotations

import ast
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.device.cache import executable_cache
from ipu_tf.device.cache.cache_entry import SUFFIX
from ipu_tf.device.cache.compiler_options import YNN_FUSIONS, compiler_options, numeric_options
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

ROOT = Path(__file__).resolve().parents[4]
ROWS = 32769
X = np.zeros((ROWS, 3), np.float32)
X[:, 0] = np.arange(ROWS) % 2000
#: What each row's sum of squares is, exactly; jaxlib 0.10.2 by itself gives another last value.
WANTED = X[:, 0] ** 2

#: Where `jax.jit` is called without the options, each with its reason.
WITHOUT = {
    # An outer jit inlines it and compiles it with its own options.
    "ipu_tf/device/numerics/philox.py",
    # Exported as StableHLO, not compiled; the engine that loads it compiles with the options.
    "ipu_tf/device/files/executable_file.py",
    # The same, run by TensorFlow's own XLA.
    "ipu_tf/lowering/programs/exported_function.py",
    # A sum of whole numbers that connects the instances.
    "ipu_tf/device/instances/across.py",
    # Steps of stock Keras, to be compared with: as stock as can be.
    "keras_ipu/parity/steps.py",
}
#: The same in tests of kernels.
TESTS_WITHOUT = {
    # Exported, not compiled.
    "tests/ipu_tf/device/convolution/test_native.py",
    "tests/ipu_tf/device/convolution/test_onednn.py",
    # Within another one.
    "tests/ipu_tf/device/elementwise/test_elementwise.py",
}


def sums_of_squares(x: tf.Tensor) -> tf.Tensor:
    """Products that are squared and summed."""
    return tf.reduce_sum(tf.square(tf.matmul(tf.eye(3), x, transpose_b=True)), 0)


def test_a_straight_program(strategy: Any) -> None:  # noqa: F811
    np.testing.assert_array_equal(strategy.run(tf.function(sums_of_squares), [tf.constant(X)]), WANTED)


def test_sums_in_a_loop(strategy: Any) -> None:  # noqa: F811
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(X).repeat())
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def program() -> None:
        ipu.loops.repeat(3, lambda x: outfeed.enqueue(sums_of_squares(x)), [], infeed)

    strategy.run(tf.function(program, autograph=False))
    np.testing.assert_array_equal(outfeed.dequeue(), [WANTED] * 3)


def test_programs_in_the_executable_cache(
    strategy: Any,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={tmp_path / 'cache'}")
    try:
        for _ in range(2):
            np.testing.assert_array_equal(strategy.run(tf.function(sums_of_squares), [tf.constant(X)]), WANTED)
    finally:
        executable_cache.use("")
    assert len(list((tmp_path / "cache").glob(f"*{SUFFIX}"))) == 1


def test_the_options_are_part_of_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir(0o700)
    for options in (numeric_options(), {}):
        monkeypatch.setattr(executable_cache, "numeric_options", lambda options=options: options)
        function = executable_cache.CachedFunction(jnp.square, (), tmp_path / "cache")
        function(jnp.ones(3))
    assert len(list((tmp_path / "cache").glob(f"*{SUFFIX}"))) == 2


def test_an_exported_program(tmp_path: Path) -> None:
    function = executable_cache.jitted(jax.export.deserialize(jax.export.export(jax.jit(_in_jax))(X).serialize()).call)
    np.testing.assert_array_equal(function(X), WANTED)


def _in_jax(x: Any) -> Any:
    return jnp.sum(jnp.square(jnp.eye(3, dtype=x.dtype) @ x.T), 0)


def _without_options(*patterns: str) -> set[str]:
    """Returns the files that call `jax.jit` without compiler options, or pass it on."""
    without = set()
    for path in itertools.chain.from_iterable(map(ROOT.glob, patterns)):
        nodes = [*ast.walk(ast.parse(path.read_text()))]
        calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "jax.jit"]
        right = [call for call in calls if any(keyword.arg == "compiler_options" for keyword in call.keywords)]
        named = [node for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node) == "jax.jit"]
        if len(named) > len(right):
            without.add(path.relative_to(ROOT).as_posix())
    return without


def test_every_compilation_of_the_project_has_the_options() -> None:
    without = _without_options("ipu_tf/**/*.py", "keras_ipu/**/*.py")
    assert without == WITHOUT, "give jax.jit compiler_options=compiler_options()"


def test_what_kernels_are_compared_with_has_them_too() -> None:
    """A reference that XLA computes wrongly says nothing, and one that ends the process takes other tests with it."""
    folders = (f"tests/ipu_tf/device/{name}/*.py" for name in ("convolution", "elementwise", "packed"))
    without = _without_options(*folders, "tests/helpers/native_fuzz.py", "tests/helpers/lowering_parity.py")
    assert without == TESTS_WITHOUT, "use `jit` of tests.helpers.library_jit"


def test_options_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert numeric_options()[YNN_FUSIONS] == "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"
    assert numeric_options().items() <= compiler_options().items()
    monkeypatch.setenv("XLA_FLAGS", f"--xla_cpu_enable_fast_math=false --{YNN_FUSIONS}=")
    assert YNN_FUSIONS not in compiler_options(), "what the user asks for by name is theirs to choose"


USERS_OWN = """
import os, sys
import jax, numpy as np
before = dict(os.environ)
import ipu_tf as ipu, tensorflow as tf
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
ipu.ipu_strategy.IPUStrategy().run(tf.function(lambda x: x + 1), [tf.constant(1.0)])
assert os.environ.get("XLA_FLAGS") == before.get("XLA_FLAGS")
text = jax.jit(lambda x: x.sum(1)).lower(np.ones((32, 32, 1024), np.float32)).compile().as_text()
print("fusions:", text.count("__ynn_fusion"))
"""


def test_code_of_the_users_own_is_compiled_as_ever() -> None:
    told = subprocess.run(
        [sys.executable, "-c", USERS_OWN], env=dict(os.environ), capture_output=True, text=True, check=True, cwd=ROOT
    )
    stock = jax.jit(lambda x: x.sum(1)).lower(np.ones((32, 32, 1024), np.float32)).compile().as_text()
    assert f"fusions: {str(stock).count('__ynn_fusion')}" in told.stdout
