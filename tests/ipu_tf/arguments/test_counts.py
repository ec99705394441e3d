"""Arguments that are counts: whole numbers in range, and an error that names the argument for anything else."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._arguments.counts import as_integer, checked_count, checked_iterations
from ipu_tf.ipu_run_config import IPURunConfig
from ipu_tf.ops import all_to_all_op, cross_replica_ops, embedding_ops, internal_ops, math_ops, reduce_scatter_op
from ipu_tf.ops.pipelining_ops import pipeline
from ipu_tf.optimizers import GradientAccumulationOptimizerV2
from keras_ipu.optimizers import GradientAccumulationOptimizer
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

DATA = tf.data.Dataset.range(4).map(lambda i: tf.cast(i, tf.float32))
ROW = tf.zeros([4])


def traced(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Calls a function with a count inside a program."""

    def call(count: Any) -> Any:
        def program() -> None:
            function(count)

        return tf.function(program, autograph=False).get_concrete_function()

    return call


def pipelined(**counts: Any) -> Any:
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    stages = [lambda x: x, lambda x: x]
    told = {"gradient_accumulation_count": 4, **counts}
    return pipeline(stages, inputs=[ROW], outfeed_queue=outfeed, **told)


TAKES_COUNT: dict[str, Callable[[Any], Any]] = {
    "n": traced(lambda n: ipu.loops.repeat(n, lambda x: x, ROW)),
    "maximum_iterations": traced(
        lambda n: ipu.loops.while_loop(lambda x: True, lambda x: x, ROW, maximum_iterations=n)
    ),
    "gradient_accumulation_count": traced(lambda n: pipelined(gradient_accumulation_count=n)),
    "repeat_count": traced(lambda n: pipelined(repeat_count=n)),
    "batch_serialization_iterations": traced(lambda n: pipelined(batch_serialization_iterations=n)),
    "num_mini_batches": lambda n: GradientAccumulationOptimizerV2(tf.compat.v1.train.GradientDescentOptimizer(1.0), n),
    "num_mini_batches of Keras": lambda n: GradientAccumulationOptimizer("sgd", n),
    "iterations_per_loop": lambda n: IPURunConfig(iterations_per_loop=n),
    "num_replicas": lambda n: IPURunConfig(num_replicas=n),
    "num_shards": lambda n: IPURunConfig(num_shards=n),
    "prefetch_depth": lambda n: ipu.ipu_infeed_queue.IPUInfeedQueue(DATA, prefetch_depth=n),
    "buffer depth": lambda n: ipu.ipu_outfeed_queue.IPUOutfeedQueue(buffer_depth=n),
    "replication_factor of all_gather": traced(lambda n: all_to_all_op.all_gather(ROW, n)),
    "replication_factor of all_to_all": traced(lambda n: all_to_all_op.all_to_all(ROW, 0, 0, n)),
    "replication_factor of reduce_scatter": traced(lambda n: reduce_scatter_op.reduce_scatter(ROW, n)),
    "replica_group_size": traced(lambda n: cross_replica_ops.cross_replica_sum(ROW, n)),
    "depth": traced(lambda n: internal_ops.fifo(ROW, n)),
    "serialization_factor": traced(lambda n: math_ops.serialized_matmul(ROW[None], ROW[:, None], n, "b_rows")),
    "serialization_factor of a lookup": traced(lambda n: embedding_ops.embedding_lookup(ROW[:, None], [0], n)),
}
"""By the name that the error uses: a call that counts with its argument."""


@pytest.mark.parametrize("name", TAKES_COUNT)
@pytest.mark.parametrize("value", [-2, 2.5, "4", True, [3]], ids=repr)
def test_what_counts_is_a_whole_number_in_range(strategy: Any, name: str, value: Any) -> None:  # noqa: F811
    argument = name.split(" of ")[0].replace(" ", ".")
    error = ValueError if isinstance(value, int) and not isinstance(value, bool) else TypeError
    with pytest.raises(error, match=f"(?s){argument}.*(Received: |but it is |but was |positive|>= 1)"):
        TAKES_COUNT[name](value)


@pytest.mark.parametrize("one", [1, np.int64(1), np.uint8(1), np.array(1)], ids=repr)
@pytest.mark.parametrize("name", [name for name in TAKES_COUNT if name != "gradient_accumulation_count"])
def test_numbers_of_numpy_count(strategy: Any, name: str, one: Any) -> None:  # noqa: F811
    TAKES_COUNT[name](one)


@pytest.mark.parametrize("n", [2**31, 2**32 + 2, np.int64(2**32 + 2), tf.constant(2**32 + 2, tf.int64)], ids=repr)
@pytest.mark.parametrize("name", ["n", "maximum_iterations", "gradient_accumulation_count", "repeat_count"])
def test_counts_beyond_32_bits_are_refused(strategy: Any, name: str, n: Any) -> None:  # noqa: F811
    with pytest.raises(ValueError, match=f"{name}.*(2147483647|int32).*Received: {int(n)}"):
        TAKES_COUNT[name](n)


def test_a_product_of_counts_beyond_32_bits_is_refused(strategy: Any) -> None:  # noqa: F811
    with pytest.raises(ValueError, match=f"Received: {2**32}"):
        traced(lambda n: pipelined(gradient_accumulation_count=2**20, repeat_count=n))(2**12)


def test_repeat_without_a_number_is_refused(strategy: Any) -> None:  # noqa: F811
    with pytest.raises(TypeError, match="`n` must be an integer of at least 0. Received: None"):
        TAKES_COUNT["n"](None)


def test_a_number_known_at_run_time_is_int32() -> None:
    def taken(dtype: tf.DType) -> tf.Tensor:
        program = tf.function(lambda n: checked_iterations("n", n))
        return program.get_concrete_function(tf.TensorSpec([], dtype)).outputs[0]

    assert taken(tf.int32).dtype == taken(tf.int16).dtype == tf.int32
    for dtype in (tf.int64, tf.uint32, tf.float32):
        with pytest.raises(TypeError, match=rf"`n` must be .* int32 scalar tensor.*Received: {dtype.name}"):
            taken(dtype)


@pytest.mark.parametrize("value", [2.0, np.float32(2), "2", None, True, np.bool_(True), [2], np.ones(1, int)], ids=repr)
def test_what_is_no_whole_number(value: Any) -> None:
    assert as_integer(value) is None
    with pytest.raises(TypeError, match="`count` must be a positive integer. Received: "):
        checked_count("count", value)


def test_a_variable_counts() -> None:
    assert checked_count("count", tf.Variable(3)) == 3
    assert inspect.signature(checked_count).parameters["least"].default == 1
