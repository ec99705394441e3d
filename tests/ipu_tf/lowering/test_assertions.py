"""Assertions in programs on the device: `tf.debugging`, `check_numerics`, TensorArrays that grow; against stock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.device.files.executable_file import ExportError, contents
from ipu_tf.device.numerics.assertions import ASSERTIONS
from ipu_tf.lowering.programs.build import build_program
from ipu_tf.lowering.programs.served_step import served_step
from ipu_tf.lowering.stablehlo.errors import LoweringError
from ipu_tf.lowering.tensorflow import tf_private
from ipu_tf.lowering.tensorflow.markers import marker
from ipu_tf.lowering.tensorflow.trace import lower
from ipu_tf.ops.replication_ops import replication_index
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture
from tests.helpers.some_ipus import ipus
from tests.ipu_tf.lowering.test_half_precision import configured

Strategy = ipu.ipu_strategy.IPUStrategyV1
X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def in_a_loop(x: tf.Tensor) -> tf.Tensor:
    for step in tf.range(5):
        for _ in tf.range(2):
            tf.debugging.assert_less(step, 3, message="in a loop")
    return x


def in_a_branch(x: tf.Tensor) -> tf.Tensor:
    if tf.reduce_sum(x) > 0:
        tf.debugging.assert_negative(x, message="in a branch")
    return x


def in_a_condition(x: tf.Tensor) -> tf.Tensor:
    def goes_on(i: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_less(i, 3, message="in a condition")
        return i < 5

    return tf.while_loop(goes_on, lambda i: [i + 1], [0])


def many_types(x: tf.Tensor) -> tf.Tensor:
    data = [x, *(tf.cast(x, t) for t in (tf.int64, tf.bool, tf.int8, tf.float16, tf.bfloat16, tf.uint32))]
    tf.debugging.Assert(tf.reduce_all(x < 2), ["values", *data, tf.complex(x, x)], summarize=3)
    return x


def shown(summarize: int) -> Callable[[tf.Tensor], tf.Tensor]:
    return lambda x: [tf.debugging.Assert(tf.reduce_all(x < 2), ["all", x], summarize=summarize), x][1]


def custom_gradient(x: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.sqrt(tf.debugging.check_numerics(x - 1, "root"))
    return tape.gradient(y, x)


#: What fails: a function of `X`.
FAILS: dict[str, Callable[[Any], Any]] = {
    "less": lambda x: [tf.debugging.assert_less(x, 2.0, message="m"), x][1],
    "equal, integers": lambda x: [tf.debugging.assert_equal(tf.cast(x, tf.int32), 1, "other"), x][1],
    "summarize 1": shown(1),
    "summarize all": shown(-1),
    "many types": many_types,
    "NaN": lambda x: tf.debugging.check_numerics(x / 0 - x / 0, "numbers"),
    "NaN and infinity": lambda x: tf.debugging.check_numerics((x - 1) / 0, "numbers"),
    "assert_all_finite": lambda x: [tf.debugging.assert_all_finite(-x / 0, "numbers"), x][1],
    "CheckNumericsV2": lambda x: tf.raw_ops.CheckNumericsV2(tensor=-(x - 2) / 0, message="numbers"),
    "gradient": custom_gradient,
    "in a loop": in_a_loop,
    "in a branch": in_a_branch,
    "in a condition": in_a_condition,
    "in a function": lambda x: tf.function(in_a_branch)(x),
    "in map_fn": lambda x: tf.map_fn(lambda row: [tf.debugging.assert_less(row, 3.0), row][1], x),
}


def words(error: tf.errors.OpError) -> str:
    """TensorFlow's own message: without its names for functions and nodes, and where it was."""
    lines = str(error.message).splitlines()
    [said] = [line for line in lines if "assertion failed" in line or "Tensor had" in line]
    return said.partition("}} ")[2] if said.startswith("{{") else said


@pytest.mark.parametrize("name", FAILS)
def test_a_failing_assertion_says_what_tensorflow_says(strategy: Strategy, name: str) -> None:  # noqa: F811
    function = FAILS[name]
    with pytest.raises(tf.errors.InvalidArgumentError) as stock:
        tf.function(function)(tf.constant(X))
    with pytest.raises(tf.errors.InvalidArgumentError) as mine:
        strategy.run(tf.function(function), [tf.constant(X)])
    assert words(mine.value) == words(stock.value)
    assert "Variables keep the values they had before the run." in str(mine.value.message)


HOLDS: dict[str, Callable[[Any], Any]] = {
    "less": lambda x: [tf.debugging.assert_less(x, 20.0), x * 2][1],
    "numbers": lambda x: tf.debugging.check_numerics(x, "numbers") * 3,
    "shapes": lambda x: [tf.debugging.assert_shapes([(x, (2, "n"))]), tf.ensure_shape(x, [2, None]) + 1][1],
    "dynamic TensorArray of enough size": lambda x: (
        tf.TensorArray(tf.float32, size=2, dynamic_size=True).write(0, x).write(1, -x).stack()
    ),
}


@pytest.mark.parametrize("name", HOLDS)
def test_what_holds_changes_nothing(strategy: Strategy, name: str) -> None:  # noqa: F811
    stock = tf.function(HOLDS[name])(tf.constant(X))
    with device_work() as work:
        np.testing.assert_array_equal(strategy.run(tf.function(HOLDS[name]), [tf.constant(X)]), stock)
    assert work.counts.executions == 1


def hidden_of(function: Callable[[Any], Any]) -> set[str]:
    concrete = tf_private.concrete_function(tf.function(function, jit_compile=True), tf.TensorSpec(X.shape))
    program = build_program(lower(concrete).module)
    assert (ASSERTIONS in program.hidden) == bool(program.checks) == program.keeps_state
    return set(program.hidden)


def test_assertions_that_always_hold_cost_nothing() -> None:
    def static(x: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_equal(tf.shape(x)[0], 2)
        tf.debugging.assert_less(tf.constant([1.0, 2.0]), 3.0)
        tf.debugging.Assert(True, ["never"])
        tf.debugging.assert_rank(x, 2)
        return x

    assert hidden_of(static) == set()
    assert ASSERTIONS in hidden_of(HOLDS["less"])


def test_the_first_failure_is_named_with_its_step_and_state_is_kept(strategy: Strategy) -> None:  # noqa: F811
    variable, queue = tf.Variable(0.0), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with strategy.scope():
        iterator = iter(tf.data.Dataset.range(100).map(lambda i: tf.cast(i, tf.float32)))

    @tf.function
    def program(iterator: Any, limit: tf.Tensor) -> None:
        for _ in tf.range(8):
            value = next(iterator)
            tf.debugging.assert_less(value, limit, message="first")
            tf.debugging.assert_less(value, limit - 1.0, message="second")
            variable.assign_add(value)
            queue.enqueue(value)

    strategy.run(program, [iterator, tf.constant(50.0)])
    before = float(variable)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)second.*\[11\].*in step 4 of the loop\. Variables"):
        strategy.run(program, [iterator, tf.constant(12.0)])
    assert float(variable) == before == sum(range(8))
    assert len(queue.dequeue()) == 12  # with the failing step's; nothing ran after it
    strategy.run(program, [iterator, tf.constant(50.0)])
    assert float(variable) > before


@pytest.mark.parametrize("staged", [True, False])
def test_replicas_name_the_one_that_failed(staged: bool) -> None:
    with ipus(4) as four:
        with four.scope():
            iterator = iter(tf.data.Dataset.range(100, output_type=tf.int32))

        @tf.function
        def program(iterator: Any) -> None:
            for step in tf.range(4):
                value = next(iterator) if staged else 4 * step + replication_index()
                tf.debugging.assert_none_equal(value, 6, message="six")

        with pytest.raises(tf.errors.InvalidArgumentError, match="(?s)six.*in step 2 of the loop on replica 2"):
            four.run(program, [iterator])


def test_a_loop_without_end_ends_with_its_failure(strategy: Strategy) -> None:  # noqa: F811
    @tf.function
    def program(x: tf.Tensor) -> tf.Tensor:
        while x > 0:
            x = x + 1
            tf.debugging.assert_less(x, 50, message="far")
        return x

    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)far.*\[50\].*in step 49 of the loop"):
        strategy.run(program, [tf.constant(1)])


def test_an_exception_in_a_loops_condition_is_found() -> None:
    """Its sibling: a condition keeps nothing either."""
    with configured(inv=True) as checking, pytest.raises(tf.errors.InternalError, match="an invalid operation in"):

        @tf.function
        def program(x: tf.Tensor) -> tf.Tensor:
            return tf.while_loop(lambda y: y < 5.0, lambda y: [y + 1.0], [x])

        checking.run(program, [tf.constant(np.nan)])


def test_assertions_in_the_condition_of_a_streamed_loop_are_refused(strategy: Strategy) -> None:  # noqa: F811
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def goes_on(i: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_less(i, 3)
        return i < 5

    def body(i: tf.Tensor) -> list[tf.Tensor]:
        queue.enqueue(i)
        return [i + 1]

    with pytest.raises(NotImplementedError, match="an assertion in the condition of a loop that uses feeds"):
        strategy.run(tf.function(lambda x: tf.while_loop(goes_on, body, [x])), [tf.constant(0)])


def test_a_tensor_array_that_grows_is_refused(strategy: Strategy) -> None:  # noqa: F811
    @tf.function
    def from_nothing(x: tf.Tensor) -> tf.Tensor:
        rows = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        for i in tf.range(3):
            rows = rows.write(i, x)
        return rows.stack()

    @tf.function
    def from_two(x: tf.Tensor) -> tf.Tensor:
        rows = tf.TensorArray(tf.float32, size=2, dynamic_size=True)
        for i in tf.range(3):
            rows = rows.write(i, x)
        return rows.stack()

    with pytest.raises((NotImplementedError, tf.errors.InvalidArgumentError), match=r"TensorArray.*of (size )?0"):
        strategy.run(from_nothing, [tf.constant(X)])
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?s)element 2 of a TensorArray of 2.*in step 3"):
        strategy.run(from_two, [tf.constant(X)])


def test_enable_check_numerics(strategy: Strategy) -> None:  # noqa: F811
    tf.debugging.enable_check_numerics()
    try:
        function = tf.function(lambda x: tf.math.log(x - 2.0) + 1.0)
        with pytest.raises(tf.errors.InvalidArgumentError, match='output 0 of graph op "Log"'):
            strategy.run(function, [tf.constant(X)])
    finally:
        tf.debugging.disable_check_numerics()


def test_in_a_session() -> None:
    with ipus(1), tf.Graph().as_default():
        fed = tf.compat.v1.placeholder(tf.float32, [2])

        def program(x: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([tf.debugging.assert_positive(x, message="fed")]):
                return x * 2

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            result = ipu.ipu_compiler.compile(program, [fed])
        with tf.compat.v1.Session() as session:
            np.testing.assert_array_equal(session.run(result, {fed: [1, 2]})[0], [2, 4])
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"assertion failed: \[fed"):
                session.run(result, {fed: [1, -2]})


def test_what_cannot_raise_is_not_exported() -> None:
    """Neither in a file nor, beside ops of the device's own, in a SavedModel."""
    concrete = tf_private.concrete_function(tf.function(HOLDS["less"], jit_compile=True), tf.TensorSpec(X.shape))
    with pytest.raises(ExportError, match="asserts .`assert_less/.*Assert`"):
        contents(build_program(lower(concrete).module))

    def own(x: tf.Tensor) -> tf.Tensor:
        return marker("ipu.assume_equal", [x], [tf.TensorSpec(x.shape, x.dtype)])[0]

    with pytest.raises(LoweringError, match="asserts .`assert_less/.*beside ops that only the device knows"):
        served_step(lambda x: HOLDS["less"](own(x)), [tf.TensorSpec(X.shape)])


class Checked(keras.layers.Layer):
    """Asserts that its input is below a limit."""

    def call(self, x: Any) -> Any:
        tf.debugging.assert_less(x, 90.0, message="a layer")
        return x


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_an_assertion_in_a_layer_ends_fit_with_its_step(stages: int, accumulation: int) -> None:
    x = np.arange(96, dtype=np.float32).reshape(96, 1)
    with ipus(stages) as several, several.scope():
        model = keras.Sequential([keras.Input((1,)), Checked(), keras.layers.Dense(1, kernel_initializer="zeros")])
        if stages > 1:
            model.set_pipeline_stage_assignment([0, 1])
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        elif accumulation > 1:
            model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=accumulation)
        model.compile("sgd", "mse", steps_per_execution=12)
        weights = model.get_weights()
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)a layer.*\[90\].*in step 12 of the loop"):
            model.fit(x, x, batch_size=8, shuffle=False, verbose=0)
        for before, after in zip(weights, model.get_weights(), strict=True):
            np.testing.assert_array_equal(before, after)
        model.fit(x[:48] / 100, x[:48], batch_size=4, shuffle=False, verbose=0)
