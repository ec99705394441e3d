"""`IPUStrategy.run` and the strategy itself, against plain calls of the same functions."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

Strategy = ipu.ipu_strategy.IPUStrategyV1


def test_structures_numbers_and_none(strategy: Strategy) -> None:  # noqa: F811
    @tf.function
    def function(pair: dict[str, tf.Tensor], factor: int, bias: tf.Tensor | None = None) -> dict[str, object]:
        return {"sum": pair["a"] + pair["b"], "scaled": (pair["a"] * factor, None), "bias": bias}

    pair = {"a": tf.constant([1.0, 2.0]), "b": np.float32(3.0)}
    result = strategy.run(function, args=[pair, 2])
    stock = function(pair, 2)
    np.testing.assert_array_equal(result["sum"], stock["sum"])
    np.testing.assert_array_equal(result["scaled"][0], stock["scaled"][0])
    assert result["scaled"][1] is None and result["bias"] is None


@pytest.mark.parametrize("place", ["eager", "in a function"])
def test_tensors_of_several_parts(strategy: Strategy, place: str) -> None:  # noqa: F811
    """`IndexedSlices`, as gradients of embeddings are, and sparse tensors come as they are, beside others."""
    table = tf.Variable(tf.reshape(tf.range(10.0), [5, 2]))

    @tf.function
    def step(rows: tf.Tensor) -> tuple[object, ...]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, rows) ** 2)
        sparse = tf.SparseTensor([[0, 1], [2, 0]], tf.gather(table, 1), [3, 2])
        return tape.gradient(loss, table), None, loss, sparse

    rows = tf.constant([1, 3, 3])
    with device_work() as work:
        if place == "eager":
            gradient, nothing, loss, sparse = strategy.run(step, [rows])
        else:
            gradient, nothing, loss, sparse = tf.function(lambda: strategy.run(step, [rows]))()
    stock = step(rows)
    assert work.counts.executions == 1 and nothing is None
    assert isinstance(gradient, tf.IndexedSlices) and isinstance(sparse, tf.SparseTensor)
    np.testing.assert_array_equal(loss, stock[2])
    np.testing.assert_array_equal(tf.convert_to_tensor(gradient), tf.convert_to_tensor(stock[0]))
    np.testing.assert_array_equal(tf.sparse.to_dense(sparse), tf.sparse.to_dense(stock[3]))


def sparse(value: float) -> tf.SparseTensor:
    return tf.SparseTensor([[0, 1], [2, int(value) % 2]], [value, 2.0], [3, 2])


def ragged(value: float) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_row_lengths([value, 2.0, 3.0], [1, 2])


def slices(value: float) -> tf.IndexedSlices:
    return tf.IndexedSlices(tf.constant([[value, 1.0]]), tf.constant([int(value)]), tf.constant([5, 2]))


PARTS = {
    "sparse": (sparse, lambda s: (tf.sparse.to_dense(s), tf.reduce_sum(s.values))),
    "ragged": (ragged, lambda r: (r.value_rowids(), tf.reduce_sum(r, axis=1))),
    "slices": (slices, lambda s: (tf.convert_to_tensor(s), tf.reduce_sum(s.values))),
}


@pytest.mark.parametrize("kind", PARTS)
def test_one_program_for_arguments_of_several_parts(strategy: Strategy, kind: str) -> None:  # noqa: F811
    make, function = PARTS[kind]
    mine, stock = tf.function(lambda pair: function(pair["x"])), tf.function(lambda pair: function(pair["x"]))
    with device_work() as work:
        for value in (1.0, 2.0, 3.0):
            found = strategy.run(mine, [{"x": make(value)}])
            for got, wanted in zip(found, stock({"x": make(value)}), strict=True):
                np.testing.assert_allclose(got, wanted)
    assert (work.counts.programs + work.counts.loads, work.counts.executions) == (1, 3)


def test_other_row_lengths_and_shapes_are_other_programs(strategy: Strategy) -> None:  # noqa: F811
    total = tf.function(lambda x: tf.reduce_sum(x, axis=1))
    for lengths in ([1, 2], [2, 1], [3], [1, 2]):
        given = tf.RaggedTensor.from_row_lengths([1.0, 2.0, 3.0], lengths)
        np.testing.assert_array_equal(strategy.run(total, [given]), tf.reduce_sum(given, axis=1))
    whole = tf.function(lambda x: tf.sparse.to_dense(x))
    for shape in ([2, 2], [2, 3]):
        matrix = tf.SparseTensor([[0, 1]], [1.0], shape)
        np.testing.assert_array_equal(strategy.run(whole, [matrix]), tf.sparse.to_dense(matrix))


def test_variables_are_read_and_written(strategy: Strategy) -> None:  # noqa: F811
    counter = tf.Variable(1, dtype=tf.int64)
    half = tf.Variable([1.0, 2.0], dtype=tf.bfloat16)

    @tf.function
    def function() -> tf.Tensor:
        half.assign(half * 2)
        return counter.assign_add(2)

    assert int(strategy.run(function)) == 3
    counter.assign(10)
    assert int(strategy.run(function)) == 12
    assert int(counter) == 12
    np.testing.assert_array_equal(tf.cast(half, tf.float32), [4.0, 8.0])


def test_a_variable_passed_as_an_argument(strategy: Strategy) -> None:  # noqa: F811
    variable = tf.Variable(2.0)
    function = tf.function(lambda v, x: v.assign_add(x))
    assert float(strategy.run(function, [variable, tf.constant(3.0)])) == 5.0
    assert float(variable) == 5.0


def test_one_compile_for_one_program_and_shape(strategy: Strategy) -> None:  # noqa: F811
    function = tf.function(lambda x: tf.reduce_sum(x * 2))
    with device_work() as work:
        for _ in range(3):
            strategy.run(function, [tf.ones(4)])
        strategy.run(function, [tf.ones(5)])
    assert (work.counts.programs, work.counts.executions) == (2, 4)


def test_training_with_an_iterator(strategy: Strategy) -> None:  # noqa: F811
    """The same loop on the device and on the host gives the same weights."""
    rng = np.random.default_rng(0)
    data = tf.data.Dataset.from_tensor_slices(
        (rng.normal(size=(64, 5)).astype(np.float32), rng.integers(0, 3, 64).astype(np.int32))
    )
    batches = data.batch(8, drop_remainder=True).repeat()
    start = rng.normal(size=(5, 3)).astype(np.float32)

    def train(weights: tf.Variable, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, features @ weights)
            loss = tf.reduce_mean(losses)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss

    mine, stock = tf.Variable(start), tf.Variable(start)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function(jit_compile=True)
    def loop(iterator: object, steps: int) -> None:
        for _ in tf.range(steps):
            features, labels = next(iterator)  # type: ignore[call-overload]
            outfeed.enqueue(train(mine, features, labels))

    with strategy.scope():
        iterator = iter(batches)
    with device_work() as work:
        for _ in range(2):
            strategy.run(loop, args=(iterator, 6))
    expected = [float(train(stock, *batch)) for batch in batches.take(12)]
    np.testing.assert_allclose(list(outfeed), expected, rtol=1e-5)
    np.testing.assert_allclose(mine, stock, rtol=1e-5)
    assert work.counts.steps == 12


def test_stateful_random_ops_follow_the_seed(strategy: Strategy) -> None:  # noqa: F811
    function = tf.function(lambda: tf.random.normal([1000]))

    def draws() -> list[np.ndarray]:
        ipu.utils.reset_ipu_seed(7)
        return [strategy.run(function).numpy() for _ in range(2)]

    (first, second), again = draws(), draws()
    np.testing.assert_array_equal([first, second], again)
    assert not np.array_equal(first, second)
    assert abs(first.mean()) < 0.15 and abs(first.std() - 1) < 0.1


def test_shuffles_are_other_permutations_each_time(strategy: Strategy) -> None:  # noqa: F811
    """XLA's shuffle of a vector sorts it by integers from [0, -1): all that there are."""

    @tf.function
    def shuffle() -> tf.Tensor:
        return tf.stack([tf.random.shuffle(tf.range(64)), tf.random.shuffle(tf.range(64)[:, None])[:, 0]])

    def draws() -> np.ndarray:
        ipu.utils.reset_ipu_seed(7)
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            eager = [tf.random.shuffle(tf.range(64)).numpy() for _ in range(3)]
        return np.concatenate([*(strategy.run(shuffle).numpy() for _ in range(3)), eager])

    found = draws()
    np.testing.assert_array_equal(np.sort(found), np.tile(np.arange(64), (9, 1)))
    assert (np.sum(found == np.arange(64), axis=1) < 8).all()  # a permutation keeps one place on average
    assert len({tuple(order) for order in found.tolist()}) == 9
    np.testing.assert_array_equal(found, draws())


def test_eager_functions_are_refused(strategy: Strategy) -> None:  # noqa: F811
    with pytest.raises(ValueError, match="does not support eager execution"):
        strategy.run(lambda: tf.constant(1.0))


def test_float64_is_refused(strategy: Strategy) -> None:  # noqa: F811
    with pytest.raises(TypeError, match="Unsupported data type for input: float64"):
        strategy.run(tf.function(lambda x: x), [tf.constant(1.0, tf.float64)])
    with pytest.raises(TypeError, match="Unsupported data type for output: float64"):
        strategy.run(tf.function(lambda: tf.constant(1.0, tf.float64)))


def test_unsupported_ops_come_all_at_once(strategy: Strategy) -> None:  # noqa: F811
    @tf.function
    def function(x: tf.Tensor) -> tf.Tensor:
        with tf.name_scope("odd"):
            y = tf.py_function(lambda v: v, [x], tf.float32)
        return tf.strings.length(tf.strings.as_string(x)) + tf.cast(tf.size(y), tf.int32)

    before = tf.Variable(1.0)
    with pytest.raises(NotImplementedError, match="(?s)EagerPyFunc.*odd/.*") as error:
        strategy.run(function, [tf.constant(1.0)])
    assert "StringLength" in str(error.value) or "AsString" in str(error.value)
    assert float(before) == 1.0


def test_strings_and_unknown_shapes_are_refused(strategy: Strategy) -> None:  # noqa: F811
    with pytest.raises(ValueError, match="computes with numbers and booleans.*string"):
        strategy.run(tf.function(lambda x: 1), [tf.constant("text")])


def test_nothing_configured_and_no_such_device() -> None:
    ipu.config.reset_ipu_configuration()
    function = tf.function(lambda: tf.constant(1.0))
    with pytest.raises(tf.errors.FailedPreconditionError, match="No device target has been configured"):
        ipu.ipu_strategy.IPUStrategy().run(function)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    with pytest.raises(tf.errors.InvalidArgumentError, match="/device:IPU:1"):
        ipu.ipu_strategy.IPUStrategy(ipu_device="/device:IPU:1").run(function)
    ipu.config.reset_ipu_configuration()


@pytest.mark.usefixtures("graphcore_rules")
def test_dataset_iterators(strategy: Strategy) -> None:  # noqa: F811
    dataset = tf.data.Dataset.from_tensors(1.0)
    with strategy.scope(), pytest.raises(RuntimeError, match="can not be accessed in eager mode"):
        next(iter(dataset))
    assert float(next(iter(dataset))) == 1.0
    with ipu.ipu_strategy.IPUStrategy(enable_dataset_iterators=False).scope():
        assert float(next(iter(dataset))) == 1.0


def test_what_a_strategy_is(strategy: Strategy) -> None:  # noqa: F811
    assert isinstance(strategy, tf.distribute.Strategy)
    assert strategy.num_replicas_in_sync == 1
    assert strategy.supports_loss_scaling
    assert strategy.extended.non_slot_devices(None) == "/device:IPU:0"
    with pytest.raises(RuntimeError, match="Use `run` instead"):
        strategy.experimental_run_v2()
    with strategy.scope():
        assert tf.distribute.get_strategy() is strategy


def test_an_op_in_an_ipu_scope_does_not_stray_onto_the_cpu(strategy: Strategy) -> None:  # noqa: F811
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        with device_work() as eager:
            assert float(tf.constant(1.0) + tf.constant(2.0)) == 3.0
        with device_work() as work:
            [total] = ipu.ipu_compiler.compile(lambda a, b: a + b, [1.0, 2.0])
    assert float(total) == 3.0
    assert eager.counts.executions == work.counts.executions == 1


def test_run_inside_a_tf_function(strategy: Strategy) -> None:  # noqa: F811
    total = tf.Variable(1.0)
    inner = tf.function(lambda x: total.assign_add(x) * 2.0)

    @tf.function
    def outer(x: tf.Tensor) -> tf.Tensor:
        return strategy.run(inner, [x]) + 1.0

    with device_work() as work:
        assert float(outer(tf.constant(2.0))) == 7.0
    assert float(total) == 3.0
    assert work.counts.executions == 1


def test_a_reset_brings_variables_back_and_frees_the_device(strategy: Strategy) -> None:  # noqa: F811
    from ipu_tf.device.memory.residency import RESIDENCY

    variable = tf.Variable(1.0)
    strategy.run(tf.function(lambda: variable.assign_add(1.0)))
    assert len(RESIDENCY) > 0
    ipu.config.reset_ipu_configuration()
    assert len(RESIDENCY) == 0 and float(variable) == 2.0


def test_a_variable_of_unknown_shape_may_change_its_shape(strategy: Strategy) -> None:  # noqa: F811
    variable = tf.Variable([1.0, 3.0], shape=[None])
    mean = tf.function(lambda: (tf.reduce_mean(variable), variable[-1]))
    with device_work() as work:
        for value in ([1.0, 3.0], [1.0, 2.0, 6.0], [5.0], [2.0, 3.0], [4.0, 4.0, 1.0]):
            variable.assign(value)
            assert [float(each) for each in strategy.run(mean)] == [float(each) for each in mean()]
    assert (work.counts.executions, work.counts.programs) == (5, 3)


def test_a_step_of_keras_refuses_a_variable_that_has_changed_its_shape(strategy: Strategy) -> None:  # noqa: F811
    class Shifted(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.shift = tf.Variable([1.0, 3.0], shape=[None])

        def call(self, inputs: tf.Tensor) -> tf.Tensor:
            return inputs + tf.reduce_mean(self.shift)

    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), Shifted()])
        np.testing.assert_array_equal(model.predict(np.ones((2, 2)), batch_size=2, verbose=0), np.full((2, 2), 3.0))
        model.layers[0].shift.assign([1.0, 2.0, 6.0])
        with pytest.raises(ValueError, match=r"shape \[2\] of the variable .* has the shape \[3\] now"):
            model.predict(np.ones((2, 2)), batch_size=2, verbose=0)
        model.layers[0].shift.assign([4.0, 4.0])
        np.testing.assert_array_equal(model.predict(np.ones((2, 2)), batch_size=2, verbose=0), np.full((2, 2), 5.0))
