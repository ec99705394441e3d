"""Elementwise groups as calls of the native kernel: the bits of JAX's operations one by one, sums, loops, refusals."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.experimental import io_callback

from ipu_tf.device import portable
from ipu_tf.device.convolution.native import library
from ipu_tf.device.convolution.native.forward_convolution import dense_convolution
from ipu_tf.device.convolution.native_plan import forward_of
from ipu_tf.device.convolution.problem import CanonicalConvolution
from ipu_tf.device.elementwise import call_choice, encoding
from ipu_tf.device.elementwise.evaluate import with_native_elementwise
from ipu_tf.device.elementwise.function import ElementwiseFunction, function_of
from ipu_tf.device.elementwise.group import Group
from ipu_tf.device.elementwise.grouping import MOST_EQUATIONS, steps
from ipu_tf.device.elementwise.instructions import INSTRUCTIONS
from ipu_tf.device.elementwise.registers import with_registers
from ipu_tf.device.elementwise.slots import Instruction, Slot
from ipu_tf.device.jaxprs.flat_equations import flattened
from ipu_tf.device.op_scopes import keep_names
from tests.helpers.library_jit import jit

pytestmark = pytest.mark.skipif(
    library.built() is None, reason="no native library: `python setup.py build_ext --inplace` builds it"
)
SPECIAL = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-30, 3e38], np.float32)
BINARY = (lax.add, lax.sub, lax.mul, lax.div, lax.max, lax.min)
COMPARISONS = (lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge)
UNARY = (lax.neg, lax.abs, lax.square, lax.sqrt, lambda x: lax.integer_pow(x, 2))
SHAPES = [((3, 70), (3, 70)), ((3, 70), ()), ((), (3, 70)), ((3, 70), (1, 70)), ((3, 70), (3, 1))]
DAMAGES = [(1, 0), (1, 41), (2, 0), (2, 4096), (3, 0), (4, 2), (5, 9), (9, 9000), (10, 7), (11, 39)]
DAMAGES += [(-5, 9000), (-4, 50), (-3, -1)]  # of the last instruction: code, place of the result, first operand
Case = Callable[..., Any]


@pytest.fixture(autouse=True)
def every_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes calls of all groups, however few there are."""
    monkeypatch.setattr(call_choice, "DISTINCT", 1)


def calls(function: Case, *arguments: Any) -> list[ElementwiseFunction]:
    """The elementwise calls that a function becomes."""
    flat = flattened(jax.make_jaxpr(function)(*arguments))
    return [function_of(each, flat.types, {}) for each in steps(flat, grouped=True) if isinstance(each, Group)]


def same_bits(found: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))  # NaN equals NaN, 0 equals -0


def special(shape: Sequence[int], seed: int) -> jax.Array:
    random = np.random.default_rng(seed)
    chosen = random.choice(SPECIAL, size=shape)
    return jnp.asarray(np.where(random.random(shape) < 0.3, chosen, random.normal(size=shape)), jnp.float32)


def normal(shape: Sequence[int]) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


@pytest.mark.parametrize("operation", [*BINARY, *COMPARISONS], ids=lambda each: each.__name__)
@pytest.mark.parametrize(
    "shapes", [((3, 70), (3, 70)), ((3, 70), ()), ((), (3, 70)), ((3, 70), (1, 70)), ((3, 70), (3, 1))]
)
def test_operations_of_two_operands(operation: Case, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    def both(x: Any, y: Any) -> Any:
        return operation(*jnp.broadcast_arrays(x, y))

    x, y = (special(shape, seed) for seed, shape in enumerate(shapes))
    assert calls(both, x, y)
    same_bits(jit(with_native_elementwise(both))(x, y), both(x, y))


@pytest.mark.parametrize("operation", UNARY)
def test_operations_of_one_operand(operation: Case) -> None:
    x = special((513,), 3)
    assert calls(operation, x)
    same_bits(jit(with_native_elementwise(operation))(x), operation(x))


def test_rsqrt_is_the_rounded_quotient() -> None:
    x = jnp.asarray(np.random.default_rng(0).random(1000) + 1e-3, jnp.float32)
    same_bits(jit(with_native_elementwise(lax.rsqrt))(x), np.float32(1) / np.sqrt(np.asarray(x)))


@pytest.mark.parametrize("bounds", [(0.0, 6.0), (-1.0, np.inf), (np.nan, 1.0)])
def test_clamp(bounds: tuple[float, float]) -> None:
    def clamped(x: Any) -> Any:
        return lax.clamp(np.float32(bounds[0]), x, np.float32(bounds[1]))

    x = special((300,), 4)
    same_bits(jit(with_native_elementwise(clamped))(x), clamped(x))


def test_truth_values() -> None:
    def function(x: Any, y: Any, given: Any) -> Any:
        small, large = x < 0.5, y >= x
        each = (small & large, small | given, small ^ large, ~given, jnp.where(given, x, 2.0), jnp.where(given, 1.0, y))
        return (
            *each,
            jnp.where(small, x, y),
            jnp.where(given, small, large),
            given.astype(jnp.float32),
            (x > 0) & (x < 1),
        )

    x, y = special((9, 67), 1), special((9, 67), 2)
    mask = np.random.default_rng(0).random((9, 67)) < 0.5
    same_bits(jit(with_native_elementwise(function))(x, y, mask), function(x, y, mask))
    same_bits(jit(with_native_elementwise(function))(x, y, mask[:1]), function(x, y, mask[:1]))


def largest(x: Any) -> Any:
    """The largest values over the first two axes: by itself XLA:CPU reduces in YNNPACK, which loses NaN."""

    def reduced(each: Any) -> Any:
        return jnp.max(each, axis=(0, 1))

    return reduced(x) if isinstance(x, jax.core.Tracer) else jit(reduced)(x)


def applied(kind: Any, shape: tuple[int, ...], x: Any, y: Any, z: Any, w: Any) -> Any:
    """One operation of a random program."""
    match kind:
        case "where":
            return jnp.where(x < y, z, w)
        case "clamp":
            return jnp.clip(x, -0.5, 2.0)
        case "largest":
            return y - largest(x)  # exact, in any order
        case "reverse":
            return jnp.flip(x, 0) + y
        case "reshape":
            return (x.reshape(-1, shape[-1]) * y.reshape(-1, shape[-1])).reshape(shape)
        case "transposed":
            return lax.reshape(x, shape, dimensions=(2, 0, 1)) + y
    if kind is lax.div:
        y = y + 0.0  # the sign of a zero that `max` or `min` chose among both is open: a quotient would show it
    return kind(x) if kind in UNARY else kind(x, y)


@st.composite
def random_programs(draw: st.DrawFn) -> tuple[Case, list[jax.Array]]:
    """Random functions of arrays `[a, b, c]`, of rows, of columns and of numbers, with reductions among them."""
    shape = tuple(draw(st.integers(1, 5)) for _ in range(2)) + (draw(st.sampled_from([1, 3, 17, 64, 300])),)
    shapes = [shape, shape, shape[-1:], (*shape[:-1], 1), ()]
    kinds: st.SearchStrategy[Any] = st.sampled_from(
        [*BINARY, *UNARY, "where", "clamp", "largest", "reverse", "reshape", "transposed"]
    )
    plan = [(draw(kinds), *(draw(st.integers(0, 99)) for _ in range(4))) for _ in range(draw(st.integers(1, 25)))]
    kept = draw(st.sets(st.integers(0, 24), min_size=1))

    def function(*arguments: Any) -> list[Any]:
        values = [jnp.broadcast_to(each, shape) if each.ndim != 1 else each + jnp.zeros(shape) for each in arguments]
        for kind, *places in plan:
            x, y, z, w = (values[place % len(values)] for place in places)
            values.append(applied(kind, shape, x, y, z, w))
        return [each for place, each in enumerate(values[len(arguments) :]) if place in kept or place == len(plan) - 1]

    return function, [special(each, seed) for seed, each in enumerate(shapes)]


@given(random_programs())
@settings(max_examples=60, deadline=None)
def test_random_programs_have_the_numbers_of_operations_one_by_one(program: tuple[Case, list[jax.Array]]) -> None:
    function, arguments = program
    same_bits(jit(with_native_elementwise(function))(*arguments), function(*arguments))


@pytest.mark.parametrize("shape", [(64, 33, 17), (9, 2050), (1000, 16), (3, 5, 7, 1000), (40, 40, 1600)])
def test_sums_over_all_axes_but_the_last_are_added_up_with_the_elements(shape: tuple[int, ...]) -> None:
    axes = tuple(range(len(shape) - 1))

    def function(x: Any, s: Any) -> Any:
        y = (x - s) * x
        return y, jnp.sum(y, axes), jnp.sum(y * y, axes), jnp.sum(jnp.abs(y), axes)

    random = np.random.default_rng(0)
    x, s = (jnp.asarray(random.normal(size=each), jnp.float32) for each in (shape, shape[-1:]))
    [call] = calls(function, x, s)
    assert call.sums == (shape[-1],) * 3
    y, *sums = map(np.asarray, jit(with_native_elementwise(function))(x, s))
    np.testing.assert_array_equal(y, (np.asarray(x) - np.asarray(s)) * np.asarray(x))
    y = y.astype(np.float64)
    for found, terms in zip(sums, (y, y * y, abs(y)), strict=True):
        assert np.max(abs(found - terms.sum(axes)) / abs(terms).sum(axes)) < 16 * np.finfo(np.float32).eps


def test_instruction_sets_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any, y: Any, s: Any) -> Any:
        z = x * s + y
        return z, jnp.clip(z, 0, 6), (z > 0) & (z < 6), z - 0.1 * x / (jnp.sqrt(y * y) + 1e-7), jnp.sum(z, (0, 1))

    arguments = [special((5, 40, 72), 1), special((5, 40, 72), 2), jnp.float32(0.3)]
    assert [call.sums for call in calls(function, *arguments)] == [(72,)]
    found, call = [], encoding.call
    for level in range(len(library.LEVELS)):
        monkeypatch.setattr(encoding, "call", functools.partial(call, level=level))
        found.append(jit(with_native_elementwise(function))(*arguments))
    for each in found[1:]:
        same_bits(each, found[0])


def test_joined_instructions_keep_what_others_read() -> None:
    def function(x: Any, y: Any) -> Any:
        return (x - y) * 2.0 + (x + y) * 3.0, lax.sqrt(x) + 1.0, x * 2.0 / y

    x, y = special((70,), 1), special((70,), 2)
    names = [each.name for call in calls(function, x, y) for each in call.instructions]
    assert {"sub_vv_mul_s", "sqrt_add_s", "mul_vs_div_v"} <= set(names)
    same_bits(jit(with_native_elementwise(function))(x, y), function(x, y))


def test_loops_write_over_their_values() -> None:
    def update(_: Any, state: Any) -> Any:
        m, v, w = state
        g = w - 1.0
        m_new = m + (g - m) * 0.1
        v_new = v + (lax.square(g) - v) * 0.01
        return m_new, v_new, w - m_new * m / (jnp.sqrt(v_new) + 1e-3) - m * 0.01  # reads m after it was replaced

    def function(state: Any) -> Any:
        return lax.fori_loop(0, 7, update, state)

    state = tuple(jnp.asarray(np.random.default_rng(n).random(1000), jnp.float32) for n in range(3))
    expected = state
    for step in range(7):
        expected = update(step, expected)
    compiled = jit(with_native_elementwise(function))
    assert "output_operand_alias" in compiled.lower(state).as_text()
    same_bits(compiled(state), expected)


def test_results_take_the_memory_of_operands_that_nothing_reads_afterwards() -> None:
    def function(x: Any, row: Any) -> Any:
        first = lax.sort(x)  # made here, and read by the first group alone
        kept = lax.sort(-x)  # read by both groups
        scaled = (first - row) * kept
        total = lax.reduce_sum(scaled, (0,))
        return scaled * total + kept, lax.cumsum(kept)

    x, row = normal((24, 64)), normal((1, 64))
    compiled = jit(with_native_elementwise(function)).lower(x, row)
    calls_with_alias = [line for line in compiled.as_text().splitlines() if "output_operand_alias" in line]
    assert len(calls_with_alias) == 2  # `scaled` over `first`; the result over `scaled`, but not over `kept`
    for found, expected in zip(compiled.compile()(x, row), jit(function)(x, row), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)  # the order of the sum


def test_what_a_step_reads_that_need_not_come_before_is_not_written_over() -> None:
    """XLA may compute the cumulative sum later, and would copy what it reads."""

    def function(x: Any, row: Any) -> Any:
        made = lax.sort(x)
        return lax.cumsum(made), (made - row) * 2.0

    lowered = jit(with_native_elementwise(function)).lower(normal((24, 64)), normal((1, 64)))
    assert library.ELEMENTWISE in lowered.as_text()
    assert "output_operand_alias" not in lowered.as_text()


def test_a_result_that_is_reshaped_is_written_over_without_a_copy() -> None:
    """XLA copies what a reshape makes before a call that writes over it."""

    def function(x: Any, y: Any, row: Any) -> Any:
        return (x.reshape(64, 64) @ y).reshape(8, 8, 64) / row - 1.0

    x, y, row = normal((8, 8, 64)), normal((64, 64)), normal((64,))
    compiled = jit(with_native_elementwise(function))
    lowered = compiled.lower(x, y, row)
    assert "output_operand_alias" in lowered.as_text()
    assert " copy(" not in str(lowered.compile().as_text())
    expected = np.asarray(x, np.float64).reshape(64, 64) @ np.asarray(y, np.float64)
    np.testing.assert_allclose(compiled(x, y, row), expected.reshape(8, 8, 64) / row - 1.0, rtol=1e-4, atol=1e-4)


def test_arguments_and_what_is_returned_are_not_written_over() -> None:
    def function(x: Any) -> Any:
        made = lax.sort(x)
        return made, (x - 1.0) * 2.0, made.reshape(4, 16) + 1.0

    x = normal((64,))
    lowered = jit(with_native_elementwise(function)).lower(x)
    assert library.ELEMENTWISE in lowered.as_text()
    assert "output_operand_alias" not in lowered.as_text()
    same_bits(lowered.compile()(x), function(x))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_random_programs_with_results_in_place(seed: int) -> None:
    """Chains of groups that read each other's results, whole, reshaped and broadcast: the bits of JAX's operations."""
    random = np.random.default_rng(seed)
    plan = [(int(random.integers(7)), *(int(n) for n in random.integers(0, 2**16, 3))) for _ in range(12)]

    def function(x: Any, y: Any) -> Any:
        values = [x, y]
        for kind, a, b, c in plan:
            one, other = values[a % len(values)], values[b % len(values)]
            match kind:
                case 0 | 1 | 2:
                    values.append((lax.add, lax.sub, lax.max)[kind](one, other))
                case 3:
                    values.append(lax.select(one > other, one, values[c % len(values)]))
                case 4:
                    values.append(lax.sort(one))
                case 5:
                    values.append((one.reshape(48, 4) * 0.5).reshape(12, 16))
                case _:
                    values.append(one - lax.slice(other, (0, 0), (1, 16)))
        return [values[n % len(values)] for n in (plan[0][1], -1, plan[1][2])]

    x, y = (jnp.asarray(random.normal(size=(12, 16)), jnp.float32) for _ in range(2))
    same_bits(jit(with_native_elementwise(function))(x, y), function(x, y))


def test_branches_scans_and_nested_loops() -> None:
    def function(x: Any, flags: Any) -> Any:
        def halved(carry: Any) -> Any:
            return lax.fori_loop(0, 3, lambda _, each: each * 0.5 + x, carry)

        def step(carry: Any, flag: Any) -> Any:
            carry = lax.cond(
                flag, lambda c: c * 2.0 - x, lambda c: lax.fori_loop(0, 3, lambda _, d: d * 0.5 + x, c), carry
            )
            return carry, jnp.abs(carry) + 1.0

        return lax.scan(step, x, flags)

    x, flags = normal((40,)), jnp.array([True, False, False, True])
    native = with_native_elementwise(function)
    assert jit(native).lower(x, flags).as_text().count(library.ELEMENTWISE) >= 3
    for found, expected in zip(jit(native)(x, flags), jit(function)(x, flags), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)  # XLA joins products and sums in its own loops


def test_rows_that_were_reshaped_are_read_in_place() -> None:
    def function(x: Any, row: Any, column: Any) -> Any:
        return lax.mul(x, row.reshape(1, 1, 32)) + lax.sub(x, column.reshape(5, 1, 1))

    x, row, column = normal((5, 7, 32)), normal((32,)), normal((5,))
    [call] = calls(function, x, row, column)
    assert [operand.sizes for operand in call.inputs] == [(), (1, 1, 35, 32), (1, 1, 5, 224)]
    same_bits(jit(with_native_elementwise(function))(x, row, column), function(x, row, column))


def test_equations_without_results_keep_their_order() -> None:
    seen: list[float] = []

    def function(x: Any) -> Any:
        for place in range(3):
            x = x * 2.0 + 1.0
            io_callback(lambda value: seen.append(float(value)), None, jnp.max(x) + place, ordered=True)
        return x

    np.testing.assert_array_equal(jit(with_native_elementwise(function))(jnp.zeros(64)), np.full(64, 7.0))
    jax.effects_barrier()
    assert seen == [1.0, 4.0, 9.0]


def test_large_groups_stay_with_xla() -> None:
    def function(x: Any) -> Any:
        for _ in range(MOST_EQUATIONS):
            x = lax.sub(lax.mul(x, x), x)
        return x

    x = jnp.zeros(40)
    assert not calls(function, x)
    same_bits(jit(with_native_elementwise(function))(x), np.zeros(40))


def test_sums_of_many_columns_and_few_terms_stay_with_xla() -> None:
    def function(x: Any) -> Any:
        return jnp.sum(x * x * 0.5, 0)

    assert [call.sums for call in calls(function, jnp.ones((8, 2**14)))] == [(2**14,)]
    for shape in ((4, 1000), (8, 2**14 + 16)):
        assert [call.sums for call in calls(function, jnp.ones(shape))] == [()]


def test_parts_of_a_call_write_over_what_they_read() -> None:
    def function(x: Any, row: Any, column: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            x, total = state
            y = lax.sub(lax.mul(x, row.reshape(1, 1, 50)), column)
            return y, total + jnp.sum(y * y, (0, 1))

        return lax.fori_loop(0, 3, step, (x, jnp.zeros(row.shape)))

    x, row, column = normal((90, 40, 50)), normal((50,)), normal((90, 1, 1))
    expected, total = np.asarray(x), np.zeros(50)
    for _ in range(3):
        expected = expected * np.asarray(row) - np.asarray(column)
        total = total + (expected.astype(np.float64) ** 2).sum((0, 1))
    found, sums = jit(with_native_elementwise(function))(x, row, column)
    same_bits(found, expected)
    np.testing.assert_allclose(sums, total, rtol=1e-6)


def test_names_of_scopes_stay() -> None:
    def function(x: Any) -> Any:
        with jax.named_scope("layer"):
            return lax.rev(jax.jit(lambda y: y * 2.0 + 1.0)(x), (0,))

    keep_names(True)
    try:
        text = jit(with_native_elementwise(function)).lower(jnp.zeros(40)).as_text(debug_info=True)
    finally:
        keep_names(False)
    assert re.search(r"layer/ffi_call", text)
    assert re.search(r"layer/rev", text)


def test_replicas_side_by_side() -> None:
    def function(x: Any, s: Any) -> Any:
        return (x * s + 1.0) / lax.psum(x, "replica")

    x, s = normal((4, 6, 33)), jnp.arange(33, dtype=jnp.float32)
    mapped = jax.vmap(function, (0, None), axis_name="replica")
    assert calls(mapped, x, s)
    np.testing.assert_allclose(jit(with_native_elementwise(mapped))(x, s), mapped(x, s), rtol=1e-5)


def test_a_program_of_few_groups_and_code_for_files_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any) -> Any:
        return x * 2.0 + 1.0

    x = special((40,), 1)
    native = with_native_elementwise(function)
    assert library.ELEMENTWISE in jit(native).lower(x).as_text()
    assert library.ELEMENTWISE not in jit(portable.portable(native)).lower(x).as_text()
    monkeypatch.setattr(call_choice, "DISTINCT", 2)
    assert library.ELEMENTWISE not in jit(with_native_elementwise(function)).lower(x).as_text()
    monkeypatch.setattr(call_choice, "GROUPS", 1)
    assert library.ELEMENTWISE in jit(with_native_elementwise(function)).lower(x).as_text()


@pytest.mark.parametrize(
    ("layers", "convolutions", "large", "expected"),
    [
        *((79, 0, 51, False), (80, 0, 51, True), (100, 5, 51, True), (100, 6, 51, False), (120, 6, 51, True)),
        *((79, 6, 50, False), (80, 6, 50, True)),
    ],
)
def test_groups_that_are_alike_are_calls_where_they_are_large_or_convolutions_are_few(
    layers: int, convolutions: int, large: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deep(x: Any, filters: Any, layers: int, convolutions: int) -> Any:
        problem = CanonicalConvolution(1, 2, 2, (5, 5), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1))
        for layer in range(layers):
            x = lax.rem(x * 2.0 + 1.0, 3.0)
            if layer < convolutions:
                x = dense_convolution(x, filters, forward_of(problem))
        return x

    monkeypatch.setattr(call_choice, "DISTINCT", 100)
    monkeypatch.setattr(call_choice, "LARGE", large)
    x, filters = special((1, 5, 5, 2), 1), special((3, 3, 2, 2), 2)
    program = with_native_elementwise(functools.partial(deep, layers=layers, convolutions=convolutions))
    assert (library.ELEMENTWISE in jit(program).lower(x, filters).as_text()) == expected


def test_the_kernel_has_the_instructions_in_this_order() -> None:
    header = (library.built() or encoding.__file__).parent / "elementwise_kernels.h"  # type: ignore[union-attr]
    table = header.read_text().split("static Kernel *const", 1)[1].split("{", 1)[1].split("};", 1)[0]
    macros = {
        "FORMS": ("vv", "vs", "sv"),
        "COMPARISONS": ("vv", "vs"),
        "SECONDS": tuple(f"{name}_{form}" for name in ("add", "sub", "from", "mul") for form in "vs"),
        "STORED": ("vv_store", "vs_store"),
    }
    names: list[str] = []
    for macro, name in re.findall(r"(\w+)\((\w+)\)", table):
        names += [name] if macro == "NAME" else [f"{name}_{form}" for form in macros[macro]]
    assert tuple(names) == INSTRUCTIONS


@pytest.mark.parametrize(("word", "value"), DAMAGES)
def test_damaged_programs_are_refused(word: int, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any) -> Any:
        return x * 2.0 + 1.0

    right = encoding.words

    def damaged(*arguments: Any) -> np.ndarray:
        words = right(*arguments)
        words[word] = value
        return words

    monkeypatch.setattr(encoding, "words", damaged)
    with pytest.raises(Exception, match="INVALID_ARGUMENT"):
        jax.block_until_ready(jit(with_native_elementwise(function))(special((40,), 1)))


def test_registers_follow_from_the_order_of_operands() -> None:
    """Not from hashes, which differ from process to process: kept programs would not be found."""
    for first in range(0, 40, 4):
        left, right, total, last = (Slot("register", first + place) for place in range(4))
        instructions = [
            Instruction("neg", left, (Slot("input", 0),)),
            Instruction("neg", right, (Slot("input", 1),)),
            Instruction("add_vv", total, (left, right)),
            Instruction("neg", last, (total,)),
        ]
        found, count = with_registers(instructions)
        assert [each.to.index for each in found] == [0, 1, 1, 1] and count == 2
