"""Compares imported programs with stock TensorFlow on the CPU, or with NumPy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core
import numpy as np
import tensorflow as tf

from ipu_tf.lowering.importer.interpreter import Interpreter
from ipu_tf.lowering.stablehlo.module import Module, custom_call_target, parse, walk
from tests.helpers.library_jit import jit


class NoFeeds:
    """For programs that use no queues; any use fails the test."""

    def dequeue(self, queue: str, types: Sequence[jax.ShapeDtypeStruct], given: Any = None) -> list[jax.Array]:
        raise AssertionError(f"the program takes from {queue!r}")

    def enqueue(self, queue: str, values: Sequence[jax.Array], given: Any = None) -> None:
        raise AssertionError(f"the program puts into {queue!r}")


@dataclasses.dataclass(frozen=True)
class Case:
    """A TensorFlow function whose imported program must give what TensorFlow gives.

    Attributes:
        name: of the test.
        fn: a function of tensors to a tensor, or a list or tuple of them.
        args: numpy arrays.
        ops: StableHLO ops (custom calls as `@target`) that must occur in what TensorFlow lowers it to.
        rtol: tolerance relative to the largest element of a result; 0 asks for equal values.
        xla: compare with TensorFlow's own XLA, for what its CPU kernels refuse or do differently.
    """

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    ops: tuple[str, ...]
    rtol: float = 1e-5
    xla: bool = False

    def check(self) -> None:
        """Fails unless both agree."""
        args = [tf.constant(arg) for arg in self.args]
        assert_same(self.fn, *args, ops=self.ops, rtol=self.rtol, xla=self.xla)


@dataclasses.dataclass(frozen=True)
class TextCase:
    """A program that TensorFlow cannot be made to emit, as text, and what numpy says of it.

    Attributes:
        name: of the test.
        signature: of `main`, e.g. `(%a: tensor<3xf32>) -> tensor<3xf32>`.
        body: the statements of `main`, return included.
        args: numpy arrays.
        expected: the results.
        ops: StableHLO ops that must occur.
        rtol: tolerance relative to the largest element of a result; 0 asks for equal values.
        more: further functions.
    """

    name: str
    signature: str
    body: str
    args: tuple[Any, ...]
    expected: tuple[Any, ...]
    ops: tuple[str, ...]
    rtol: float = 1e-5
    more: str = ""

    def parse(self) -> Module:
        """The program."""
        return parse(f"module {{ func.func @main{self.signature} {{\n{self.body}\n}} {self.more} }}")

    def check(self) -> None:
        """Fails unless the results are as expected."""
        module = self.parse()
        _assert_emitted(module, self.ops)
        _assert_all_close(run_module(module, *self.args), self.expected, self.rtol)


def lowered(fn: Callable[..., Any], *args: Any) -> Module:
    """The StableHLO that TensorFlow makes of a function, parsed."""
    return parse(_compiled(fn).experimental_get_compiler_ir(*args)(stage="stablehlo_serialized"))


def _compiled(fn: Callable[..., Any]) -> Any:
    """TensorFlow's XLA program of a function; the lambda hides arguments such as `name` of `tf.abs`."""
    return tf.function(lambda *args: fn(*args), jit_compile=True, autograph=False)


def ops_of(module: Module) -> set[str]:
    """Names of the ops in a module, and of its custom calls as `@target`."""
    operations = list(walk(module.main, module.functions))
    targets = {f"@{custom_call_target(operation)}" for operation in operations}
    return ({operation.name for operation in operations} | targets) - {"@"}


def run_module(module: Module, *args: Any) -> list[np.ndarray]:
    """The results of a module run by JAX."""
    with jax.enable_x64(True):
        return [np.asarray(value) for value in jit(_program(module))(*map(np.asarray, args))]


def traced_module(module: Module, *args: Any) -> jax.extend.core.ClosedJaxpr:
    """Returns the jaxpr of a module."""
    with jax.enable_x64(True):
        return jax.make_jaxpr(_program(module))(*map(np.asarray, args))


def _program(module: Module) -> Callable[..., list[jax.Array]]:
    return lambda *arrays: Interpreter(module, NoFeeds()).run_block(module.main, arrays)


def assert_same(
    fn: Callable[..., Any], *args: Any, ops: Sequence[str] = (), rtol: float = 1e-5, xla: bool = False
) -> None:
    """Asserts that the imported function gives what stock TensorFlow gives; see `Case`."""
    module = lowered(fn, *args)
    _assert_emitted(module, ops)
    wanted = _compiled(fn)(*args) if xla else fn(*args)
    _assert_all_close(run_module(module, *args), tf.nest.flatten(wanted), rtol)


def _assert_emitted(module: Module, ops: Sequence[str]) -> None:
    missing = set(ops) - ops_of(module)
    assert not missing, f"{sorted(missing)} do not occur, but {sorted(ops_of(module))}"


def _assert_all_close(found: Sequence[np.ndarray], expected: Sequence[Any], rtol: float) -> None:
    assert len(found) == len(expected)
    for got, wanted in zip(found, expected, strict=True):
        assert_close(got, wanted.numpy() if tf.is_tensor(wanted) else np.asarray(wanted), rtol)


def assert_close(got: np.ndarray, expected: np.ndarray, rtol: float) -> None:
    """Asserts equal shapes and dtypes, and equal values to within `rtol` of the largest finite one."""
    assert (got.shape, got.dtype) == (np.shape(expected), expected.dtype)
    if rtol == 0 or got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, expected)
        return
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    got, expected = got.astype(wide), expected.astype(wide)
    finite = np.abs(expected[np.isfinite(expected)])
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * float(finite.max(initial=0)))
