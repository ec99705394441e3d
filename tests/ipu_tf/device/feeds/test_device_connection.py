"""Device connections: programs that are compiled and not run, and what stands for their results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.config import DeviceConnectionType, IPUConfig, reset_ipu_configuration
from ipu_tf.device.feeds import connection_type
from ipu_tf.device.feeds.execution_queues import ExecutionQueues
from ipu_tf.device.program.program import Program
from ipu_tf.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from tests.helpers.device_counts import device_work

ONLY = "configured for compilation only"


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    """Nothing is configured afterwards."""
    yield
    reset_ipu_configuration()


def connect(kind: DeviceConnectionType, ipus: int = 1) -> Any:
    """A strategy on a device that is connected so."""
    config = IPUConfig()
    config.auto_select_ipus = ipus
    config.device_connection.type = kind
    config.device_connection.version = "ipu2"
    config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Program, int]]:
    """The programs that are compiled without a device, with the ordinals of their devices."""
    programs: list[tuple[Program, int]] = []
    stock = connection_type.placeholder_results

    def noted(program: Program, ordinal: int, feeds: ExecutionQueues) -> tuple[np.ndarray, ...]:
        programs.append((program, ordinal))
        return stock(program, ordinal, feeds)

    monkeypatch.setattr(connection_type, "placeholder_results", noted)
    return programs


@pytest.mark.parametrize("kind", [DeviceConnectionType.ALWAYS, DeviceConnectionType.ON_DEMAND])
def test_with_a_device_programs_run(kind: DeviceConnectionType, compiled: list[Any]) -> None:
    with device_work() as work:
        assert float(connect(kind).run(tf.function(lambda x: x + 1), [tf.constant(2.0)])) == 3.0
    assert work.counts.executions == 1
    assert compiled == []


def test_never_refuses_to_run_what_it_compiled(compiled: list[tuple[Program, int]]) -> None:
    variable = tf.Variable([1.0, 2.0])
    strategy = connect(DeviceConnectionType.NEVER)
    with device_work() as work, pytest.raises(tf.errors.InvalidArgumentError, match=ONLY):
        strategy.run(tf.function(variable.assign_add), [tf.constant([1.0, 1.0])])
    assert work.counts.executions == 0
    assert [ordinal for _, ordinal in compiled] == [0]
    assert variable.numpy().tolist() == [1, 2]


def test_never_reports_what_cannot_be_compiled() -> None:
    strategy = connect(DeviceConnectionType.NEVER)
    with pytest.raises(Exception, match="values whose shape depends on data") as caught:
        strategy.run(tf.function(lambda x: tf.unique(x)[0]), [tf.constant([1.0, 1.0, 2.0])])
    assert ONLY not in str(caught.value)


@pytest.mark.parametrize("ipus", [1, 2])
def test_pre_compile_gives_zeros(ipus: int, compiled: list[tuple[Program, int]]) -> None:
    variable = tf.Variable([1.0, 2.0])
    strategy = connect(DeviceConnectionType.PRE_COMPILE, ipus)

    def step(x: tf.Tensor) -> Any:
        return variable.assign_add(x) * 2, tf.cast(x, tf.int32), tf.random.uniform([3], 1, 2)

    with device_work() as work:
        results = strategy.run(tf.function(step), [tf.constant([1.0, 1.0])])
    assert [result.numpy().tolist() for result in results] == [[0, 0], [0, 0], [0, 0, 0]]
    assert [result.dtype for result in results] == [tf.float32, tf.int32, tf.float32]
    assert variable.numpy().tolist() == [0, 0]
    assert work.counts.executions == 0
    assert len(compiled) == 1


@pytest.mark.parametrize("mode", list(IPUOutfeedMode))
@pytest.mark.parametrize("ipus", [1, 2])
def test_feeds_of_pre_compiled_programs(mode: IPUOutfeedMode, ipus: int) -> None:
    strategy = connect(DeviceConnectionType.PRE_COMPILE, ipus)
    queue = IPUOutfeedQueue(outfeed_mode=mode)
    read: list[int] = []

    def note(value: np.ndarray) -> np.ndarray:
        read.append(1)
        return value

    dataset = tf.data.Dataset.from_tensor_slices(np.ones((2, 3), np.float32))
    dataset = dataset.map(lambda value: tf.ensure_shape(tf.numpy_function(note, [value], tf.float32), [3]))
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)

    def body(total: tf.Tensor, element: tf.Tensor) -> Any:
        return total + element, queue.enqueue({"row": element, "one": element[0]})

    loop = tf.function(lambda: ipu.loops.repeat(100, body, [tf.zeros([3])], infeed))
    for _ in range(2):
        assert strategy.run(loop).numpy().tolist() == [0, 0, 0]
    elements = queue.dequeue()
    axes = ([] if mode is IPUOutfeedMode.LAST else [1]) + ([2] if ipus == 2 else [])
    assert elements["row"].shape == (*axes, 3)
    assert elements["one"].shape == tuple(axes)
    assert not elements["row"].numpy().any()
    assert read == []


def model_of(strategy: Any) -> Any:
    """A small model made under a strategy."""
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", "mse", steps_per_execution=3)
    return model


def test_keras_pre_compiles() -> None:
    model = model_of(connect(DeviceConnectionType.PRE_COMPILE))
    inputs, targets = np.ones((12, 4), np.float32), np.ones((12, 3), np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((inputs, targets)).batch(2, drop_remainder=True)
    with device_work() as work:
        predictions = model.predict(inputs, batch_size=2, verbose=0)
        assert model.ipu_report().peak > inputs.nbytes // 6
        assert (predictions.shape, predictions.any()) == ((12, 3), False)
        assert model.fit(dataset, epochs=2, shuffle=False, verbose=0).history == {"loss": [0.0, 0.0]}
    assert work.counts.executions == 0


def test_keras_only_compiles() -> None:
    model = model_of(connect(DeviceConnectionType.NEVER))
    before = model.get_weights()
    with pytest.raises(tf.errors.InvalidArgumentError, match=ONLY):
        model.fit(np.ones((6, 4), np.float32), np.ones((6, 3), np.float32), batch_size=2, verbose=0)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))


@pytest.mark.parametrize("kind", [DeviceConnectionType.NEVER, DeviceConnectionType.PRE_COMPILE])
def test_programs_in_sessions(kind: DeviceConnectionType) -> None:
    connect(kind)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed = tf.compat.v1.placeholder(tf.float32, [2])
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            [result] = ipu.ipu_compiler.compile(lambda x: x + 1, [fed])
        if kind is DeviceConnectionType.NEVER:
            with pytest.raises(tf.errors.InvalidArgumentError, match=ONLY):
                session.run(result, {fed: [1.0, 2.0]})
        else:
            assert session.run(result, {fed: [1.0, 2.0]}).tolist() == [0, 0]


def test_a_reset_connects_again() -> None:
    connect(DeviceConnectionType.NEVER)
    assert not connection_type.attached()
    reset_ipu_configuration()
    assert connection_type.attached()
    connect(DeviceConnectionType.PRE_COMPILE)
    assert connection_type.current() is connection_type.Connection.PRE_COMPILE
    assert float(connect(DeviceConnectionType.ALWAYS).run(tf.function(lambda: tf.constant(1.0) + 1))) == 2.0
