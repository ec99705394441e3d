"""Digests of jaxprs: equal exactly for equal jaxprs with equal constants, and in every process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from ipu_tf.device.jaxprs.jaxpr_digest import jaxpr_digest

X = jnp.ones((4, 4))
TABLE = np.arange(4, dtype=np.float32)


def digest(function: Callable[..., Any], *arguments: Any) -> str:
    return jaxpr_digest(jax.make_jaxpr(function)(*(arguments or (X,))))


@jax.custom_jvp
def ramp(x: Any) -> Any:
    return jnp.maximum(x, 0)


@ramp.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return ramp(primals[0]), tangents[0] * (primals[0] > 0)


OPERATIONS: list[Callable[[Any], Any]] = [
    jnp.sin,
    jax.nn.relu,
    ramp,
    jax.nn.softmax,
    lambda x: x + 1,
    lambda x: x + 2,
    lambda x: x + np.int32(1),
    lambda x: x + TABLE,
    lambda x: x + TABLE[::-1],
    lambda x: x @ x,
    lambda x: x.T,
    lambda x: x.sum(0) + x,
    lambda x: x.sum(1) + x,
    lambda x: jnp.sort(x, axis=0),
    lambda x: jnp.sort(x, axis=1),
    lambda x: x.astype(jnp.bfloat16).astype(jnp.float32),
    lambda x: x.astype(jnp.float16).astype(jnp.float32),
    lambda x: lax.fori_loop(0, 3, lambda _, y: y * 0.5, x),
    lambda x: lax.fori_loop(0, 4, lambda _, y: y * 0.5, x),
    lambda x: lax.scan(lambda y, row: (y + row, None), x, x)[0],
    lambda x: lax.scan(lambda y, row: (y + row, None), x, x, reverse=True)[0],
    lambda x: lax.cond(x[0, 0] > 0, jnp.cos, jnp.sin, x),
    lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    lambda x: x * jax.random.uniform(jax.random.key(1), x.shape),
    lambda x: x * jax.random.uniform(jax.random.key(2), x.shape),
    lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 1), "SAME"),
    lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 1), ((0, 1), (1, 0))),
    lambda x: lax.conv(x[None, None], jnp.ones((1, 1, 3, 3)), (1, 1), "SAME")[0, 0],
    lambda x: lax.dynamic_slice(x, (1, 0), (4, 4)),
    lambda x: x[jnp.array([0, 1, 2, 3])],
    lambda x: x[jnp.array([3, 1, 2, 0])],
]


NUMBERS = st.lists(st.integers(0, len(OPERATIONS) - 1), min_size=1, max_size=4)


def program(numbers: list[int]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for number in numbers:
            x = OPERATIONS[number](x)
        return x

    return run


@settings(max_examples=60, deadline=None)
@given(one=NUMBERS, other=NUMBERS, gradient=st.booleans())
def test_programs_have_one_digest_only_if_they_are_the_same(one: list[int], other: list[int], gradient: bool) -> None:
    """By JAX's own text, and the values of constants."""

    def of(numbers: list[int]) -> Any:
        run = program(numbers)
        return jax.make_jaxpr(jax.grad(lambda x: run(x).sum()) if gradient else run)(X)

    first, second = of(one), of(other)
    assert jaxpr_digest(first) == jaxpr_digest(of(one)) != ""
    if one != other:
        constants = [[np.asarray(each).tobytes() for each in traced.consts] for traced in (first, second)]
        equal = str(first) == str(second) and constants[0] == constants[1]
        assert (jaxpr_digest(first) == jaxpr_digest(second)) == equal


def test_types_of_arguments_count() -> None:
    given = [X, X[:2], X[None], X.astype(jnp.bfloat16), X.astype(jnp.int32), 1.0, jnp.float32(1)]
    found = [digest(jnp.negative, each) for each in given]
    assert len({*found}) == len(given)


def test_the_order_of_arguments_and_results_counts() -> None:
    pairs = [lambda a, b: (a - b, a), lambda a, b: (b - a, a), lambda a, b: (a, a - b), lambda a, b: (a - b, b)]
    assert len({digest(pair, X, X) for pair in pairs}) == len(pairs)


def test_precisions_count() -> None:
    found = [digest(lambda x, p=p: jnp.matmul(x, x, precision=p)) for p in (None, "highest", "tensorfloat32")]
    assert len({*found}) == 3


def test_what_calls_the_host_has_none() -> None:
    def called(x: Any) -> Any:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    def printed(x: Any) -> Any:
        jax.debug.print("{}", x[0, 0])
        return x

    assert digest(called) == digest(printed) == digest(jax.jit(called)) == ""


SCRIPT = """
import sys
sys.path.insert(0, {root!r})
import jax
from tests.ipu_tf.device.jaxprs.test_jaxpr_digest import X, OPERATIONS, program, digest
run = program(list(range(len(OPERATIONS))))
print("DIGEST", digest(jax.grad(lambda x: run(x).sum())))
"""


@pytest.mark.parametrize("seed", ["0", "1"])
def test_another_process_has_the_same(seed: str, pytestconfig: pytest.Config) -> None:
    run = program(list(range(len(OPERATIONS))))
    script = SCRIPT.format(root=str(pytestconfig.rootpath))
    done = subprocess.run([sys.executable, "-c", script], env={"PYTHONHASHSEED": seed, "JAX_PLATFORMS": "cpu"}, **_TEXT)
    assert done.stdout.split("DIGEST ")[1].strip() == digest(jax.grad(lambda x: run(x).sum())), done.stderr


_TEXT: dict[str, Any] = {"capture_output": True, "text": True, "check": True}
