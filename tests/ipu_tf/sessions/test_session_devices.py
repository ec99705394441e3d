"""Ops that a TensorFlow 1 graph places on an IPU: against the same graph on the CPU, and proof that the device ran."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._state import once
from tests.helpers.device_counts import device_work

tf1 = tf.compat.v1
IPU, CPU = "/device:IPU:0", "/device:CPU:0"
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


@pytest.fixture(autouse=True)
def two_ipus() -> Iterator[None]:
    """Two devices with one IPU each."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = [1, 1]
    config.configure_ipu_system()
    yield
    ipu.config.reset_ipu_configuration()


@pytest.fixture
def session() -> Iterator[Any]:
    """A plain session of an empty graph."""
    with tf.Graph().as_default(), tf1.Session() as session:
        yield session


def variable(name: str, value: Any = 1.0) -> tf.Variable:
    return tf1.get_variable(name, initializer=value, use_resource=True)


def arithmetic(x: tf.Tensor, place: str) -> Any:
    with tf.device(place):
        return tf.tanh(x) * 2.0 + tf.reduce_sum(x, axis=1, keepdims=True)


def chain_over_scopes(x: tf.Tensor, place: str) -> Any:
    with tf.device(place):
        y = x @ tf.transpose(x)
    with tf.device(place):
        return {"product": y, "again": [y @ y, x]}


def host_between(x: tf.Tensor, place: str) -> Any:
    with tf.device(place):
        y = x * 2.0
    z = tf.numpy_function(lambda v: v + 10.0, [y], tf.float32)
    z.set_shape(x.shape)
    with tf.device(place), tf.control_dependencies([z]):
        return y, z, z * x


def other_device_between(x: tf.Tensor, place: str) -> Any:
    with tf.device(place):
        y = x + 1.0
    with tf.device(place.replace("IPU:0", "IPU:1")):
        z = y * y
    with tf.device(place):
        return z - y


def group_of_host_ops(x: tf.Tensor, place: str) -> Any:
    with tf.device(place):
        y = x * 3.0
    with tf.control_dependencies([y]):
        done = tf.no_op()
    with tf.control_dependencies([done]), tf.device(place):
        return tf.identity(y) + 1.0, tf.strings.as_string(y), done


def loop(x: tf.Tensor, place: str) -> Any:
    with tf.device(place):
        return tf1.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 0.5 + x), (0, x))


def branch(x: tf.Tensor, place: str) -> Any:
    with tf.device(place):
        return tf1.cond(x[0, 0] > 0.0, lambda: x * 2.0, lambda: x - 1.0)


def gradients(x: tf.Tensor, place: str) -> Any:
    with tf.device(place):
        return tf1.gradients(tf.reduce_sum(tf.square(x) * tf.sigmoid(x)), x)


def called_function(x: tf.Tensor, place: str) -> Any:
    with tf.device(place):
        return tf.function(lambda y: tf.exp(y) + 1.0)(x)


def stateless_random(x: tf.Tensor, place: str) -> Any:
    with tf.device(place):
        return tf.cast(tf.random.stateless_uniform([2, 3], [3, 4], maxval=9, dtype=tf.int32), tf.float32) + x


def initialised_by_another(x: tf.Tensor, place: str) -> Any:
    with tf.device(place):
        v = variable("v", np.float32(2.0))
        w = variable("w", lambda: tf1.cond(v.is_initialized(), v.read_value, lambda: v.initial_value) * 3.0)
        return w * x, v


def training(x: tf.Tensor, place: str) -> Any:
    with tf.device(place):
        w = variable("w", np.ones((3, 1), np.float32))
        loss = tf.reduce_mean(tf.square(x @ w - 1.0))
        train = tf1.train.AdamOptimizer(0.1).minimize(loss, tf1.train.get_or_create_global_step())
    with tf.control_dependencies([train]):
        after = w.read_value()
    return loss, train, after


#: A graph, and how many programs one run of it is.
GRAPHS: dict[Callable[[tf.Tensor, str], Any], int] = {
    arithmetic: 1,
    chain_over_scopes: 1,
    host_between: 2,
    other_device_between: 3,
    group_of_host_ops: 2,
    loop: 1,
    branch: 1,
    gradients: 1,
    called_function: 1,
    stateless_random: 1,
    initialised_by_another: 1,
    training: 1,
}


def fetched(build: Callable[[tf.Tensor, str], Any], place: str, steps: int = 2) -> list[Any]:
    """Returns the results of a graph in some runs, and in the end its variables."""
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [2, 3])
        wanted = build(x, place)
        session.run(tf1.global_variables_initializer())
        found = [session.run(wanted, {x: VALUES + step}) for step in range(steps)]
        return [*found, session.run(tf1.global_variables())]


@pytest.mark.parametrize("old_control_flow", [False, True])
@pytest.mark.parametrize("build", GRAPHS, ids=lambda build: build.__name__)
def test_a_graph_gives_what_the_cpu_gives(build: Callable[[tf.Tensor, str], Any], old_control_flow: bool) -> None:
    before = tf1.control_flow_v2_enabled()
    (tf1.disable_control_flow_v2 if old_control_flow else tf1.enable_control_flow_v2)()
    try:
        with device_work() as work:
            mine = fetched(build, IPU)
        with device_work() as idle:
            stock = fetched(build, CPU)
    finally:
        (tf1.enable_control_flow_v2 if before else tf1.disable_control_flow_v2)()
    assert (work.counts.executions, work.counts.programs) == (2 * GRAPHS[build], GRAPHS[build])
    assert idle.counts.executions == 0
    for one, other in zip(tf.nest.flatten(mine), tf.nest.flatten(stock), strict=True):
        if isinstance(one, np.ndarray) and one.dtype == object:
            np.testing.assert_array_equal(one, other)
        elif one is not None:
            np.testing.assert_allclose(one, other, rtol=1e-5)


def test_moving_data_is_left_to_the_host(session: Any) -> None:
    with tf.device(IPU):
        v = variable("v", np.float32(2.0))
        x = tf1.placeholder(tf.float32, [])
        moved = [tf.constant(1.0), v.read_value(), v.assign(x), tf.identity(v)]
    with device_work() as work:
        session.run(tf1.global_variables_initializer())
        session.run(moved, {x: 4.0})
        assert session.run(v) == 4.0
    assert work.counts.executions == 0


def test_a_variable_fetched_beside_its_update_has_the_value_before(session: Any) -> None:
    with tf.device(IPU):
        v = variable("v")
        update = v.assign_add(2.0)
    session.run(tf1.global_variables_initializer())
    assert session.run([v, update]) == [1.0, 3.0]
    assert session.run(v) == 3.0


def test_random_numbers_come_from_the_seed_of_the_device(session: Any) -> None:
    with tf.device(IPU):
        numbers = tf.random.normal([8])
    ipu.utils.reset_ipu_seed(3)
    first, second = session.run(numbers), session.run(numbers)
    ipu.utils.reset_ipu_seed(3)
    np.testing.assert_array_equal(session.run(numbers), first)
    assert np.all(first != second)


def test_shapes_that_only_a_feed_tells(session: Any) -> None:
    with tf.device(IPU):
        x = tf1.placeholder(tf.float32, [None, 2])
        total = tf.reduce_sum(x, axis=0) / tf.cast(tf.shape(x)[0], tf.float32)
    for rows in (1, 3):
        np.testing.assert_allclose(session.run(total, {x: np.full((rows, 2), rows)}), [rows, rows])


def test_a_fed_tensor_is_not_computed(session: Any) -> None:
    with tf.device(IPU):
        y = tf1.placeholder(tf.float32, []) * 2.0
        z = y + 1.0
    with device_work() as work:
        assert session.run([y, z], {y: 5.0}) == [5.0, 6.0]
        assert session.run(y, {y: 7.0}) == 7.0
    assert work.counts.executions == 1
    with pytest.raises(tf.errors.InvalidArgumentError, match="must feed a value"):
        session.run(z)


def test_every_way_to_run(session: Any) -> None:
    with tf.device(IPU):
        x = tf1.placeholder_with_default(2.0, [])
        y = x * 2.0
    with device_work() as work:
        assert session.run(y.name) == y.eval() == session.make_callable(y)() == 4.0
        assert session.make_callable(y, [x])(3.0) == 6.0
        y.op.run()
    assert work.counts.executions == 5
    handle = session.partial_run_setup([y], [x])
    with pytest.raises(NotImplementedError, match="partial_run would run ops that are placed on an IPU"):
        session.partial_run(handle, y, {x: 1.0})


def test_a_monitored_session_with_checkpoints_and_summaries(tmp_path: Path) -> None:
    with tf.Graph().as_default(), device_work() as work:
        with tf.device(IPU):
            step = tf1.train.get_or_create_global_step()
            v = variable("v")
            update = [v.assign_add(2.0), step.assign_add(1)]
            tf1.summary.scalar("twice", v * 2.0)
        hooks = [tf1.train.StopAtStepHook(3)]
        with tf1.train.MonitoredTrainingSession(hooks=hooks, checkpoint_dir=str(tmp_path)) as monitored:
            while not monitored.should_stop():
                last = monitored.run(update)
    assert last == [7.0, 3]
    assert work.counts.executions == 3
    assert tf.train.load_variable(str(tmp_path), "v") == 7.0


def test_a_compiled_program_beside_placed_ops(session: Any) -> None:
    with ipu.scopes.ipu_scope(IPU):
        [inside] = ipu.ipu_compiler.compile(lambda a: a * 3.0, [2.0])
        outside = inside + 1.0
    with device_work() as work:
        assert session.run([inside, outside]) == [6.0, 7.0]
    assert work.counts.executions == 2


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("name", ["tensorflow.python.compiler.xla.xla", "tensorflow._api.v2.xla.experimental"])
def test_xla_compile_in_a_scope(name: str, eager: bool) -> None:
    compile = importlib.import_module(name).compile
    with device_work() as work:
        if eager:
            with tf.device(IPU):
                result = compile(lambda a, b: (a + b, a * b), [2.0, 3.0])
        else:
            with tf.Graph().as_default(), tf1.Session() as session:
                with tf.device(IPU):
                    computed = compile(lambda a, b: (a + b, a * b), [2.0, 3.0])
                result = session.run(computed)
    assert [float(value) for value in result] == [5.0, 6.0]
    assert work.counts.executions == 1
    assert float(compile(lambda a: a + 1.0, [2.0])[0]) == 3.0


def test_nothing_configured(session: Any) -> None:
    ipu.config.reset_ipu_configuration()
    with tf.device(IPU):
        y = tf.constant(1.0) + 1.0
    with pytest.raises(tf.errors.FailedPreconditionError, match="No device target has been configured"):
        session.run(y)


def test_the_ipu_model_has_one_ipu(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ipu.config.reset_ipu_configuration()
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    with tf.device(IPU), device_work() as work:
        assert session.run(tf.constant(1.0) + 1.0) == 2.0
    assert work.counts.executions == 1


def test_what_the_device_cannot_do_is_named(session: Any) -> None:
    with tf.device(IPU):
        y = tf1.py_func(lambda: np.float32(1), [], tf.float32) + tf.linalg.lu(tf.ones([2, 2]))[0][0, 0]
    with pytest.raises(NotImplementedError, match="Lu: TensorFlow cannot compile it"):
        session.run(y)


def test_a_reference_variable_is_read_but_not_changed(session: Any) -> None:
    with tf.device(IPU):
        v = tf1.get_variable("v", initializer=2.0, use_resource=False)
        doubled, changed = v * 2.0, tf1.assign_add(v, 1.0)
    session.run(tf1.global_variables_initializer())
    assert session.run(doubled) == 4.0
    with pytest.raises(ValueError, match="changes a reference variable. The device only knows resource variables"):
        session.run(changed)


@pytest.mark.parametrize("soft", [False, True])
def test_other_devices_are_as_strict_as_the_session(soft: bool) -> None:
    with tf.Graph().as_default():
        with tf.device("/device:GPU:7"):
            y = tf.constant(1.0) + 1.0
        with tf1.Session(config=tf1.ConfigProto(allow_soft_placement=soft)) as session:
            if soft:
                assert session.run(y) == 2.0
            else:
                with pytest.raises(tf.errors.InvalidArgumentError, match="explicitly assigned to /device:GPU:7"):
                    session.run(y)


def test_a_finalized_graph_stays_so(session: Any) -> None:
    with tf.device(IPU):
        y = tf.constant(1.0) + 1.0
    session.graph.finalize()
    assert session.run(y) == 2.0
    assert session.graph.finalized


def test_a_run_is_planned_once(session: Any) -> None:
    with tf.device(IPU):
        y = tf1.placeholder_with_default(1.0, []) + 1.0
    session.run(y)
    count = len(session.graph.get_operations())
    session.run(y)
    assert len(session.graph.get_operations()) == count


EAGER_OPS = {
    "matmul": lambda: tf.matmul(tf.reshape(tf.range(6.0), [2, 3]), tf.ones([3, 2]), transpose_b=False),
    "a number beside a tensor": lambda: tf.constant([1.0, 2.0]) * 3.0,
    "a list of tensors": lambda: tf.concat([tf.zeros([2]), tf.ones([3])], axis=0),
    "several results": lambda: tf.add_n(tf.split(tf.reshape(tf.range(6.0), [2, 3]), 3, axis=1)),
    "integers": lambda: tf.cast(tf.range(4), tf.float32) + tf.cast(tf.argmax([1, 3, 2]), tf.float32),
    "a variable that is read": lambda: tf.Variable([1.0, 2.0]) + 1.0,
}


@pytest.mark.parametrize("name", EAGER_OPS)
def test_eager_ops_in_a_device_scope(name: str) -> None:
    expected = EAGER_OPS[name]()
    with device_work() as work, tf.device(IPU):
        got = EAGER_OPS[name]()
    assert work.counts.executions >= 1
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_an_eager_op_is_compiled_once_for_its_shapes() -> None:
    with ipu.scopes.ipu_scope(IPU), device_work() as work:
        for value in (1.0, 2.0, 3.0):
            assert float(tf.add(tf.fill([], value), tf.ones([]))) == value + 1.0
    with ipu.scopes.ipu_scope(IPU), device_work() as again:
        tf.add(tf.fill([], 4.0), tf.ones([]))
    assert again.counts.executions < work.counts.executions
    assert again.counts.programs == 0


def test_a_gradient_tape_sees_eager_ops_of_a_device() -> None:
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape, tf.device(IPU):
        tape.watch(x)
        y = tf.reduce_sum(x * x)
    np.testing.assert_allclose(tape.gradient(y, x), [2.0, 4.0])


def test_a_device_scope_of_the_host_within_one_of_an_ipu() -> None:
    x = tf.constant(1.0)
    with device_work() as work, tf.device(IPU), tf.device(CPU):
        assert float(x + 1.0) == 2.0
    assert work.counts.executions == 0


REFUSED_EAGERLY = {
    "an update": (lambda: tf.Variable(1.0).assign_add(1.0), "works on a variable"),
    "a function": (tf.function(lambda: tf.constant(1.0) + 1.0), "A function is not run by its ops"),
    "an op that does not compile": (
        lambda: tf.raw_ops.Unbatch(batched_tensor=[1.0], batch_index=[[0, 0, 1]], id=0, timeout_micros=1),
        "cannot be comp",
    ),
}


@pytest.mark.parametrize("name", REFUSED_EAGERLY)
def test_what_is_refused_eagerly_on_an_ipu(name: str) -> None:
    run, says = REFUSED_EAGERLY[name]
    with pytest.raises(tf.errors.InvalidArgumentError, match=says), tf.device(IPU):
        run()


def test_a_function_of_the_host_with_ops_on_an_ipu() -> None:
    @tf.function
    def function(x: tf.Tensor) -> tf.Tensor:
        with tf.device(IPU):
            return x + 1.0

    with pytest.raises(tf.errors.InvalidArgumentError, match="places ops on an IPU .*called as a function of the host"):
        function(tf.constant(1.0))
    with device_work() as work:
        assert float(ipu.ipu_strategy.IPUStrategy().run(function, [tf.constant(1.0)])) == 2.0
    assert work.counts.executions == 1


def placed_in_a_loop(x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(3):
        with tf.device(IPU):
            x = x * 2.0
    return x


def placed_in_a_branch(x: tf.Tensor) -> tf.Tensor:
    def doubled() -> tf.Tensor:
        with tf.device(IPU):
            return x * 2.0

    return tf.cond(tf.reduce_sum(x) > 0.0, doubled, lambda: x)


def placed_in_a_function(x: tf.Tensor) -> tf.Tensor:
    return tf.function(placed_in_a_loop)(x) + 1.0


#: Functions with ops on an IPU in a loop, branch or function within, and what they make of 1 and of -1.
PLACED_WITHIN: dict[Callable[[tf.Tensor], tf.Tensor], tuple[float, float]] = {
    placed_in_a_loop: (8.0, -8.0),
    placed_in_a_branch: (2.0, -1.0),
    placed_in_a_function: (9.0, -7.0),
}


@pytest.mark.parametrize("computes", PLACED_WITHIN, ids=lambda each: each.__name__)
def test_a_function_of_the_host_with_ops_on_an_ipu_in_what_it_calls(computes: Callable[[tf.Tensor], tf.Tensor]) -> None:
    function = tf.function(computes)
    with pytest.raises(tf.errors.InvalidArgumentError, match="places ops on an IPU .*called as a function of the host"):
        function(tf.constant(1.0))
    strategy = ipu.ipu_strategy.IPUStrategy()
    with device_work() as work:
        found = [float(strategy.run(function, [tf.constant(value)])) for value in (1.0, -1.0)]
    assert work.counts.executions == 2
    assert tuple(found) == PLACED_WITHIN[computes]


@pytest.mark.parametrize("around", [None, CPU])
@pytest.mark.parametrize("computes", PLACED_WITHIN, ids=lambda each: each.__name__)
def test_a_session_runs_loops_and_calls_where_the_ops_in_them_are_placed(
    session: Any, computes: Callable[[tf.Tensor], tf.Tensor], around: str | None
) -> None:
    before = tf1.control_flow_v2_enabled()
    tf1.enable_control_flow_v2()
    try:
        with tf.device(around):
            x = tf1.placeholder(tf.float32, [])
            y = tf.function(computes)(x)
    finally:
        (tf1.enable_control_flow_v2 if before else tf1.disable_control_flow_v2)()
    with device_work() as work:
        found = [session.run(y + 1.0, {x: value}) - 1.0 for value in (1.0, -1.0)]
    assert work.counts.executions == 2
    assert tuple(found) == PLACED_WITHIN[computes]


def test_a_loop_of_a_session_with_ops_on_two_ipus_is_refused(session: Any) -> None:
    def body(i: tf.Tensor, x: tf.Tensor) -> Any:
        with tf.device(IPU):
            x = x * 2.0
        with tf.device("/device:IPU:1"):
            return i + 1, x + 1.0

    _, y = tf.while_loop(lambda i, x: i < 3, body, [tf.constant(0), tf.constant(1.0)])
    z = tf.constant(1.0) + 1.0
    assert session.run(z) == 2.0
    with pytest.raises(ValueError, match="ops on several IPUs: /device:IPU:0, /device:IPU:1|on different devices"):
        session.run(y)


def test_what_has_run_on_an_ipu_still_has_its_gradient() -> None:
    """That of a `tf.custom_gradient`."""
    results = []
    for place in (CPU, IPU):
        with tf.Graph().as_default(), tf1.Session() as session:
            x = tf1.placeholder(tf.float32, [2])
            with tf.device(place):
                y = tf.nn.swish(x) * 2.0
            for fetched in ([y, y + 1.0], y):
                session.run(fetched, {x: [1.0, 2.0]})
            [gradient] = tf.gradients(y, x)
            results.append(session.run(gradient, {x: [0.0, 3.0]}))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)


def test_a_loop_whose_result_the_host_reads(session: Any) -> None:
    with tf.device(IPU):
        _, y = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.nn.swish(x) * 2.0), [0, tf.constant(1.0)])
    wanted = 1.0
    for _ in range(3):
        wanted = 2.0 * wanted / (1.0 + np.exp(-wanted))
    for more in range(2):
        with device_work() as work:
            np.testing.assert_allclose(session.run(y + float(more)), wanted + more, rtol=1e-5)
        assert work.counts.executions == 1


def _lines_on_strings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "works on strings" in record.getMessage()]


def test_ops_on_strings_say_that_they_run_on_the_host(session: Any, caplog: pytest.LogCaptureFixture) -> None:
    once._SAID.clear()
    x = tf1.placeholder(tf.float32, [2])
    with tf.device(IPU):
        shown = tf.strings.as_string(x + 1.0)
    with device_work() as work, caplog.at_level("WARNING", "ipu_tf"):
        for _ in range(2):
            assert list(session.run(shown, {x: [1.0, 2.0]})) == [b"2.000000", b"3.000000"]
    assert work.counts.executions == 2
    [line] = _lines_on_strings(caplog)
    assert "AsString is placed on an IPU" in line and "runs on the host" in line


def test_eager_ops_on_strings_say_that_they_run_on_the_host(caplog: pytest.LogCaptureFixture) -> None:
    once._SAID.clear()
    with ipu.scopes.ipu_scope(IPU), caplog.at_level("WARNING", "ipu_tf"):
        joined = tf.strings.join([tf.constant("a"), tf.constant("b")])
    assert joined.numpy() == b"ab"
    [line] = _lines_on_strings(caplog)
    assert line.startswith("ipu_tf: StringJoin is placed on an IPU")
