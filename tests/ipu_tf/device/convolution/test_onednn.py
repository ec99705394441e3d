"""oneDNN's convolution by XLA's custom call: that it is called, and only where it applies."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jax.experimental.compilation_cache import compilation_cache

from ipu_tf.device import portable
from ipu_tf.device.cache import executable_cache
from ipu_tf.device.convolution import onednn
from ipu_tf.device.convolution.plan import ONEDNN
from ipu_tf.device.convolution.plans import PLANS, choose, solve
from ipu_tf.device.convolution.problem import CanonicalConvolution
from tests.helpers.library_jit import jit
from tests.helpers.plain_convolution import by_definition

ONES, SAME, NONE = (1, 1), ((1, 1), (1, 1)), ((0, 0), (0, 0))
#: In groups, which no native kernel computes.
LAYER = CanonicalConvolution(8, 32, 64, (12, 12), (3, 3), ONES, SAME, ONES, ONES, 4)
PROBLEMS = {
    "same": CanonicalConvolution(8, 16, 32, (12, 12), (3, 3), ONES, SAME, ONES, ONES),
    "groups": LAYER,
    "one axis": CanonicalConvolution(8, 16, 32, (12,), (3,), (2,), ((1, 0),), (1,), (1,)),
    "three axes": CanonicalConvolution(
        2, 4, 8, (6, 5, 7), (3, 2, 1), (1, 2, 1), ((1, 1), (0, 1), (0, 0)), (1, 1, 1), (1, 1, 1)
    ),
    "strided and dilated": CanonicalConvolution(4, 3, 5, (13, 11), (3, 2), (2, 3), ((2, 1), (0, 2)), ONES, (2, 3)),
    "depthwise": CanonicalConvolution(4, 24, 24, (9, 9), (3, 3), ONES, SAME, ONES, ONES, 24),
    "two outputs for each input": CanonicalConvolution(4, 6, 12, (9, 9), (3, 3), ONES, SAME, ONES, ONES, 6),
    "grouped": CanonicalConvolution(4, 12, 20, (9, 9), (5, 3), ONES, NONE, ONES, ONES, 4),
    "large window": CanonicalConvolution(2, 3, 8, (40, 40), (25, 25), ONES, NONE, ONES, ONES),
}

pytestmark = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="jaxlib has oneDNN on Linux x86-64 only"
)


def operands(problem: CanonicalConvolution) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    shapes = (problem.input_shape, problem.kernel_shape)
    return tuple(jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes)  # type: ignore[return-value]


def compiled(problem: CanonicalConvolution) -> str:
    """XLA's optimized module of a convolution by the best plan."""
    return str(jit(lambda a, b: solve(a, b, problem)).lower(*operands(problem)).compile().as_text())


def check_products() -> None:
    """Compares products with NumPy's."""
    rng = np.random.default_rng(0)
    for k, m, n in ((1, 1, 1), (7, 3, 5), (640, 96, 48), (3000, 17, 33)):
        left, right = (rng.normal(size=(k, size)).astype(np.float32) for size in (m, n))
        result = jit(onednn.product_of_columns)(left, right)
        np.testing.assert_allclose(result, left.T @ right, rtol=1e-5, atol=1e-5 * k**0.5, err_msg=str((k, m, n)))


def check_all() -> None:
    """Compares every problem with its definition; `test_this_jaxlib_has_it` runs this by itself."""
    for name, problem in PROBLEMS.items():
        lhs, rhs = operands(problem)
        result = jit(lambda a, b, problem=problem: onednn.convolution(a, b, problem))(lhs, rhs)
        wanted = by_definition(lhs, rhs, problem)
        assert result.shape == problem.output_shape == wanted.shape, name
        scale = float(np.abs(wanted).max())
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5 * scale, err_msg=name)


def test_this_jaxlib_has_it() -> None:
    """In a process of its own: a call that is not understood ends the process."""
    program = (
        "from tests.ipu_tf.device.convolution.test_onednn import check_all, check_products; "
        "check_all(); check_products(); print('as this has it')"
    )
    root = Path(__file__).resolve().parents[4]
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=False)
    version = importlib.metadata.version("jaxlib")
    assert ran.stdout.endswith("as this has it\n"), (
        f"oneDNN's convolution is another one in jaxlib {version}: take that out of `onednn.KNOWN`, or "
        f"mend its configuration there. {ran.stderr[-2000:]}"
    )
    assert version in onednn.KNOWN, f"jaxlib {version} has the same: add it to `ipu_tf.device.convolution.onednn.KNOWN`"


def test_the_best_plan_calls_it() -> None:
    assert choose(LAYER, frozenset({ONEDNN})).name == "onednn"
    assert onednn.TARGET in compiled(LAYER)
    assert not choose(LAYER).calls


def test_every_problem_here_is_one_for_it() -> None:
    [plan] = [plan for plan in PLANS if plan.calls == ONEDNN]
    assert all(plan.applies(problem) for problem in PROBLEMS.values())


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float16"},
        {"out_dtype": "float64"},
        {"leading_contraction": True},
        {"batch_groups": 2, "feature_groups": 1},
        {"input_dilation": (2, 1)},
        {"padding": ((-1, 0), (0, 0))},
        {"padding": ((3, 0), (0, 0))},
        {"window": (26, 1), "input": (40, 40)},
    ],
    ids=str,
)
def test_what_it_is_not_for(changes: dict[str, object]) -> None:
    [plan] = [plan for plan in PLANS if plan.calls == ONEDNN]
    assert not plan.applies(LAYER.but(**changes))


def test_the_same_bits_each_time() -> None:
    lhs, rhs = operands(LAYER)
    call = jit(lambda a, b: onednn.convolution(a, b, LAYER))
    assert len({np.asarray(call(lhs, rhs)).tobytes() for _ in range(8)}) == 1


@contextlib.contextmanager
def kept_by_us(directory: Path) -> Iterator[None]:
    executable_cache.use(str(directory))
    try:
        yield
    finally:
        executable_cache.use("")


@contextlib.contextmanager
def kept_by_jax(directory: Path) -> Iterator[None]:
    jax.config.update("jax_compilation_cache_dir", str(directory))
    try:
        yield
    finally:
        jax.config.update("jax_compilation_cache_dir", None)
        compilation_cache.reset_cache()  # which JAX goes on writing to


@pytest.mark.parametrize("kept", [kept_by_us, kept_by_jax])
def test_programs_kept_on_disk_do_without(
    kept: Callable[[Path], contextlib.AbstractContextManager[None]], tmp_path: Path
) -> None:
    with kept(tmp_path):
        assert not onednn.usable()
        assert onednn.TARGET not in compiled(LAYER)
    assert onednn.TARGET in compiled(LAYER)


def test_a_program_that_has_it_is_not_kept(tmp_path: Path) -> None:
    """Traced before there was a cache, compiled after."""
    lowered = jit(lambda a, b: [solve(a, b, LAYER)]).lower(*operands(LAYER))
    made = executable_cache.compile_cached(lowered, tmp_path, tuple(jax.local_devices()[:1]))
    assert not made.loaded and not made.stored and not list(tmp_path.iterdir())
    wanted = by_definition(*operands(LAYER), LAYER)
    np.testing.assert_allclose(made.function(*operands(LAYER))[0], wanted, rtol=1e-4, atol=1e-4)


def test_programs_that_are_exported_do_without() -> None:
    def function(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 2, lambda _, total: total + solve(lhs, rhs, LAYER), jnp.zeros(LAYER.output_shape))

    lhs, rhs = operands(LAYER)
    ran = jit(function)(lhs, rhs)
    with portable.without_native_code():
        exported = export.export(jax.jit(lambda a, b: function(a, b)))(lhs, rhs)
    loaded = export.deserialize(exported.serialize())
    np.testing.assert_allclose(loaded.call(lhs, rhs), ran, rtol=1e-4, atol=1e-4)
