"""Embeddings on the device against `tf.gather`, and on the host against the same arithmetic in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.ops import embedding_ops
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture
from tests.helpers.some_ipus import ipus

tf1 = tf.compat.v1
Strategy = ipu.ipu_strategy.IPUStrategyV1
SGD = embedding_ops.HostEmbeddingOptimizerSpec
Gathered = embedding_ops.HostEmbeddingSGDGAOptimizerSpec

table = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("factor", [1, 4])
@pytest.mark.parametrize(("rows", "ids"), [([12, 3], [5, 0, 5]), ([6, 3, 2], [[1, 2], [3, 1]]), ([12, 3], 7)])
def test_lookup_and_its_gradient(strategy: Strategy, dtype: Any, factor: int, rows: list[int], ids: Any) -> None:  # noqa: F811
    if rows[0] % factor:
        factor = 3

    def step(lookup: Callable[..., Any]) -> Any:
        def run(params: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(params)
                found = lookup(params, tf.constant(ids, tf.int32))
                loss = tf.reduce_sum(found * found)
            return found, tf.convert_to_tensor(tape.gradient(loss, params))

        return tf.function(run, autograph=False)

    params = tf.constant(table.astype(dtype).reshape(rows))
    with device_work() as work:
        mine = strategy.run(step(lambda p, i: embedding_ops.embedding_lookup(p, i, factor, True)), [params])
    for got, wanted in zip(mine, step(tf.gather)(params), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6 if dtype == np.float32 else 2e-3)
    assert work.counts.executions == 1


@pytest.mark.parametrize("shape", [[None], [None, 2]], ids=str)
def test_lookups_where_the_number_of_indices_is_open(strategy: Strategy, shape: list[int | None]) -> None:  # noqa: F811
    """It is fixed when the program is lowered."""
    params, ids = tf.Variable(table), tf.reshape(tf.constant([1, 3, 3, 0, 11, 3]), [-1, *shape[1:]])

    def step(lookup: Callable[..., Any]) -> Any:
        @tf.function(input_signature=[tf.TensorSpec(shape, tf.int32)])
        def run(ids: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                found = lookup(params, ids)
                loss = tf.reduce_sum(found * found)
            return found, tf.convert_to_tensor(tape.gradient(loss, params))

        return run

    mine = strategy.run(step(embedding_ops.embedding_lookup), [ids])
    for got, wanted in zip(mine, step(tf.nn.embedding_lookup)(ids), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    words = embedding_ops.HostEmbedding("open", tf.constant(table))
    host = tf.function(words.lookup, input_signature=[tf.TensorSpec(shape, tf.int32)])
    with words.register(), pytest.raises(ValueError, match="needs tensors of fixed shape"):
        strategy.run(host, [ids])


def test_indices_out_of_range_give_the_nearest_row() -> None:
    found = embedding_ops.embedding_lookup(table, tf.constant([-3, 40]))
    np.testing.assert_array_equal(found, table[[0, 11]])


def test_rows_added() -> None:
    changed = embedding_ops.rows_added(table, [2, 0, 2, 99], tf.ones([4, 3]), scale=0.5)
    wanted = table.copy()
    np.add.at(wanted, [2, 0, 2, 11], 0.5)
    np.testing.assert_allclose(changed, wanted, rtol=1e-6)


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no parts": (
        lambda: embedding_ops.embedding_lookup(table, [0], 0),
        ValueError,
        "serialization_factor has to be at least 1, but was 0",
    ),
    "parts": (
        lambda: embedding_ops.embedding_lookup(table, [0], 7),
        ValueError,
        r"The serialization_factor \(7\) must divide the size of the 0th dimension of params \(12\)\.",
    ),
    "table": (
        lambda: embedding_ops.HostEmbedding("t", "rows"),
        ValueError,
        "HostEmbedding embedding_tensor is not a tensorflow tensor",
    ),
    "spec": (
        lambda: embedding_ops.HostEmbedding("t", tf.constant(table), optimizer_spec="SGD"),  # type: ignore[arg-type]
        ValueError,
        "HostEmbedding optimizer_spec is not a HostEmbeddingOptimizerSpec or None",
    ),
    "strategy": (
        lambda: embedding_ops.HostEmbedding("t", tf.constant(table), "ROWS"),
        ValueError,
        "Unknown partition strategy ROWS",
    ),
    "trained constant": (
        lambda: embedding_ops.HostEmbedding("t", tf.constant(table), optimizer_spec=SGD(0.1)),
        ValueError,
        "needs a variable",
    ),
    "optimizer": (lambda: SGD(0.1, "ADAM"), ValueError, "'SGD' or 'SGD\\+GA'. Received: 'ADAM'"),
    "call": (
        lambda: embedding_ops.create_host_embedding("t", [2, 2], tf.float32)(),
        NotImplementedError,
        "HostEmbedding.__call__ is not supported",
    ),
    "eager lookup": (
        lambda: embedding_ops.create_host_embedding("t", [2, 2], tf.float32).lookup(tf.constant([0])),
        RuntimeError,
        "part of a program on the device",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_of_host_embeddings_raise(name: str) -> None:
    call, error, text = BAD[name]
    with pytest.raises(error, match=text):
        call()


def embedding(spec: Any = None, initializer: Any = None) -> Any:
    """A host embedding of the table above."""
    return embedding_ops.create_host_embedding(
        "words", [12, 3], tf.float32, optimizer_spec=spec, initializer=table if initializer is None else initializer
    )


def training(words: Any, steps: int) -> Any:
    """A tf.function that sums up half the squares of rows, and trains the rows, for some steps."""

    def body(total: tf.Tensor, ids: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(words.lookup(ids) ** 2) / 2
        tape.gradient(loss, tape.watched_variables())
        return total + loss, ids

    return tf.function(lambda ids: ipu.loops.repeat(steps, body, [0.0, ids])[0], autograph=False)


def trained(ids: np.ndarray, steps: int, rate: float, together: int = 1) -> tuple[float, np.ndarray]:
    """The losses summed up and the table in the end, by numpy."""
    rows, total, waiting = table.copy(), 0.0, []
    for _ in range(steps):
        found = rows[np.clip(ids, 0, 11)]
        total += float((found**2).sum()) / 2
        waiting.append(-rate * found)
        if len(waiting) == together:
            for change in waiting:
                np.add.at(rows, np.clip(ids, 0, 11).ravel(), change.reshape(-1, 3))
            waiting = []
    return total, rows


@pytest.mark.parametrize(("spec", "together"), [(SGD(0.25), 1), (Gathered(0.25, 2), 2), (Gathered(0.25, 1), 1)])
@pytest.mark.parametrize("ids", [np.array([3, 3, 50, -1]), np.array([[1, 2], [2, 0]])])
def test_training_on_the_host(strategy: Strategy, spec: Any, together: int, ids: np.ndarray) -> None:  # noqa: F811
    words = embedding(spec)
    with words.register(), device_work() as work:
        total = strategy.run(training(words, 5), [tf.constant(ids, tf.int32)])
        within = words.get_embedding_tensor().numpy()
    wanted, rows = trained(ids, 5, 0.25, together)
    np.testing.assert_allclose(total, wanted, rtol=1e-5)
    np.testing.assert_allclose(within, rows, rtol=1e-5)
    np.testing.assert_allclose(words.get_embedding_tensor(), rows, rtol=1e-5)
    assert (work.counts.executions, spec.get_accumulation_factor()) == (1, together)


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("lookups", [1, 2])
def test_mini_batches_are_counted_not_lookups_or_replicas(replicas: int, lookups: int) -> None:
    words, ids = embedding(Gathered(0.25, 2)), np.array([4, 4, 1])

    def body(total: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            found = [words.lookup(tf.constant(ids + place, tf.int32)) for place in range(lookups)]
            loss = tf.add_n([tf.reduce_sum(rows**2) / 2 for rows in found])
        tape.gradient(loss, tape.watched_variables())
        return total + loss

    with ipus(replicas) as device, words.register():
        total = device.run(tf.function(lambda: ipu.loops.repeat(4, body, [0.0]), autograph=False))
    rows, wanted = table.copy(), 0.0
    for _ in range(2):
        before = rows.copy()
        for place in range(lookups):
            wanted += 2 * float((before[ids + place] ** 2).sum()) / 2
            for _ in range(2 * replicas):
                np.add.at(rows, ids + place, -0.25 * before[ids + place])
    np.testing.assert_allclose(np.ravel(tf.nest.flatten(total)[0])[0], wanted, rtol=1e-5)
    np.testing.assert_allclose(words.get_embedding_tensor(), rows, rtol=1e-5)


def test_steps_written_out_see_each_others_updates(strategy: Strategy) -> None:  # noqa: F811
    words, ids = embedding(SGD(0.5)), np.array([4, 4, 1])

    def program() -> Any:
        total = tf.constant(0.0)
        for _ in range(3):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(words.lookup(tf.constant(ids, tf.int32)) ** 2) / 2
            tape.gradient(loss, tape.watched_variables())
            total += loss
        return total

    with words.register():
        total = strategy.run(tf.function(program, autograph=False))
    wanted, rows = trained(ids, 3, 0.5)
    np.testing.assert_allclose(total, wanted, rtol=1e-5)
    np.testing.assert_allclose(words.get_embedding_tensor(), rows, rtol=1e-5)


@pytest.mark.parametrize("spec", [None, SGD(0.0)])
def test_a_table_that_is_not_trained(strategy: Strategy, spec: Any) -> None:  # noqa: F811
    words = embedding_ops.HostEmbedding("constant", tf.constant(table), "ENCODING", spec)
    with words.register():
        found = strategy.run(tf.function(lambda: words.lookup(tf.constant([1, 99]))))
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"in \[0, 12\)\. Received: 99"):
            strategy.run(tf.function(lambda: words.lookup(tf.constant([1, 99]), clip_indices=False)))
    np.testing.assert_array_equal(found, table[[1, 11]])
    np.testing.assert_array_equal(words.get_embedding_tensor(), table)


@pytest.mark.parametrize("dtype", [tf.int8, tf.uint8, tf.int16, tf.uint32, tf.int64])
def test_indices_of_any_integer_type(strategy: Strategy, dtype: Any) -> None:  # noqa: F811
    """The last row of a table may be beyond what the indices' type can say."""
    rows = np.arange(300, dtype=np.float32)[:, None]
    words = embedding_ops.HostEmbedding("long", tf.constant(rows))
    indices = np.array([1, min(dtype.max, 500)])
    with words.register():
        found = strategy.run(tf.function(lambda i: words.lookup(i)), [tf.constant(indices, dtype)])
        with pytest.raises(TypeError, match="must be integers. Received: float32"):
            strategy.run(tf.function(lambda i: words.lookup(i)), [tf.constant([1.5])])
    np.testing.assert_array_equal(found[:, 0], indices.clip(0, 299))


def test_registration(strategy: Strategy) -> None:  # noqa: F811
    words = embedding(SGD(0.1))
    program = training(words, 1)
    ids = tf.constant([1], tf.int32)
    missing = r"Host embedding interface with id='words' not registered\. Did you run the associated host_embedding"
    with pytest.raises(tf.errors.FailedPreconditionError, match=missing):
        strategy.run(program, [ids])
    with words.register() as same:
        assert same is words
        twice = r"Cannot register host embedding with id='words' it already exists!"
        with pytest.raises(tf.errors.FailedPreconditionError, match=twice), words.register():
            pass
        strategy.run(program, [ids])
    with pytest.raises(tf.errors.FailedPreconditionError, match=missing):
        strategy.run(program, [ids])


def test_training_in_a_session(strategy: Strategy) -> None:  # noqa: F811
    with tf.Graph().as_default(), tf1.Session() as session:
        words = embedding(SGD(0.25), tf1.constant_initializer(table))
        ids = tf1.placeholder(tf.int32, [3])

        def step(ids: tf.Tensor) -> Any:
            loss = tf.reduce_sum(words.lookup(ids) ** 2) / 2
            return loss, tf1.train.GradientDescentOptimizer(1.0).minimize(loss)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            fetched = ipu.ipu_compiler.compile(step, [ids])
        session.run(tf1.global_variables_initializer())
        with pytest.raises(ValueError, match="requires a session when eager execution"):
            words.register()
        values = np.array([3, 3, 7])
        with words.register(session):
            total = sum(session.run(fetched, {ids: values})[0] for _ in range(3))
            within = session.run(words.get_embedding_tensor())
        after = session.run(words.get_embedding_tensor())
        with pytest.raises(tf.errors.FailedPreconditionError, match="not registered"):
            session.run(fetched, {ids: values})
    wanted, rows = trained(values, 3, 0.25)
    np.testing.assert_allclose(total, wanted, rtol=1e-5)
    np.testing.assert_allclose(within, rows, rtol=1e-5)
    np.testing.assert_allclose(after, rows, rtol=1e-5)


def test_a_session_of_another_graph_than_the_current_one() -> None:
    graph = tf.Graph()
    with graph.as_default():
        words = embedding(SGD(0.25), tf1.constant_initializer(table))
        initial = tf1.global_variables_initializer()
    with tf1.Session(graph=graph) as session:
        session.run(initial)
        with tf.Graph().as_default(), words.register(session):
            pass


def test_a_lookup_that_nothing_uses_needs_no_table(strategy: Strategy) -> None:  # noqa: F811
    words = embedding()

    def program(x: tf.Tensor) -> tf.Tensor:
        words.lookup(tf.constant([1]))
        return x + 1

    assert float(strategy.run(tf.function(program, autograph=False), [tf.constant(1.0)])) == 2.0
