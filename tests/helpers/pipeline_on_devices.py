"""Tests of pipelines on four JAX devices: run by `test_pipeline_run.py` in a process that has them."""

from __future__ import annotations

import dataclasses
import gc
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.device.memory.residency import RESIDENCY
from ipu_tf.device.schedule.timetable import TaskKind
from ipu_tf.lowering.tensorflow.variables import host_variable
from ipu_tf.ops.internal_ops import print_tensor
from ipu_tf.ops.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline
from ipu_tf.pipeline import (
    PipelineCounts,
    PipelineDevicesError,
    chrome_trace,
    peak_stash,
    pipeline_counts,
    pipelines_on_one_device,
    run_on_devices,
)
from tests.helpers.device_counts import device_work
from tests.helpers.sigint import press_ctrl_c, sigint_interrupts  # noqa: F401 - a fixture
from tests.helpers.some_ipus import ipus

SIZES = (3, 4, 5, 6, 7)
"""Of the layers: every weight has a shape of its own."""
COUNT, REPEAT, BATCH = 8, 2, 2


four_ipus = pytest.mark.parametrize("strategy", [4], indirect=True)
"""For pipelines on three or four of them: on four IPUs a pipeline on two would run as two replicas."""


@pytest.fixture(autouse=True)
def strategy(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Two IPUs, or `four_ipus`; afterwards pipelines run where they did."""
    assert len(jax.local_devices()) == 4, (
        "run tests/ipu_tf/device/run/test_pipeline_run.py, which makes four JAX devices"
    )
    with ipus(getattr(request, "param", 2)) as made:
        yield made
    run_on_devices("auto")


class Model:
    """A pipeline of a dense layer a stage, its variables and its queues."""

    def __init__(self, strategy: Any, optimizer: Callable[[], Any] | None, layers: int = 2, **arguments: Any) -> None:
        rng = np.random.default_rng(1)
        self._strategy = strategy
        self.call: Any = None
        with strategy.scope():
            shapes = list(zip(SIZES[:layers], SIZES[1:], strict=False))
            self.weights = [tf.Variable(rng.normal(size=shape).astype(np.float32) / 2) for shape in shapes]
            self.optimizer = optimizer() if optimizer else None
        self.source: Callable[[int], Any] = lambda index: self.x[index]
        self.x = rng.normal(size=(200, BATCH, SIZES[0])).astype(np.float32)
        spec = tf.TensorSpec(self.x.shape[1:], tf.float32)
        data = tf.data.Dataset.from_generator(lambda: map(self.source, range(200)), output_signature=spec)
        self.infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data)
        self.outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        self.arguments = {"gradient_accumulation_count": COUNT, "repeat_count": REPEAT} | arguments

    def stage(self, number: int, h: tf.Tensor) -> tf.Tensor:
        """One stage's layer."""
        return tf.tanh(h @ self.weights[number])

    def stages(self) -> list[Any]:
        """All stages; the last gives the loss if the model trains."""

        def last(h: tf.Tensor) -> tf.Tensor:
            y = self.stage(len(self.weights) - 1, h)
            return y if self.optimizer is None else tf.reduce_mean((y - 0.5) ** 2)

        first = [lambda h, number=number: self.stage(number, h) for number in range(len(self.weights) - 1)]
        return [*first, last]

    def loss(self, loss: tf.Tensor) -> tf.Tensor:
        """Returns the loss of the last stage's outputs."""
        return loss

    def run(self) -> Model:
        """Runs the pipeline once."""
        if self.call is None:

            def output(loss: tf.Tensor) -> OptimizerFunctionOutput:
                return OptimizerFunctionOutput(self.optimizer, self.loss(loss), variables=self.weights)

            def program() -> None:
                pipeline(
                    self.stages(),
                    infeed_queue=self.infeed,
                    outfeed_queue=self.outfeed,
                    optimizer_function=output if self.optimizer else None,
                    **self.arguments,
                )

            self.call = tf.function(program, autograph=False)
        self._strategy.run(self.call)
        return self

    def elements(self) -> np.ndarray:
        """Everything the outfeed has."""
        [elements] = tf.nest.flatten(self.outfeed.dequeue())
        return np.asarray(elements)

    def values(self) -> list[np.ndarray]:
        """The weights, then everything the outfeed has."""
        return [*(weight.numpy() for weight in self.weights), self.elements()]


def momentum() -> Any:
    return keras.optimizers.SGD(0.1, momentum=0.9)


def clipped_adam() -> Any:
    return keras.optimizers.Adam(0.01, global_clipnorm=0.05)


def counted() -> PipelineCounts:
    counts = pipeline_counts()
    assert counts is not None
    return counts


def in_both(make: Callable[[], Model]) -> tuple[Model, Model]:
    """A model that has run as one loop, and its like on devices, with the same values."""
    models = []
    for mode in ("loop", "devices"):
        run_on_devices(mode)
        models.append(make().run())
    same(models[0].values(), models[1].values())
    return models[0], models[1]


def same(wanted: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> None:
    """Equal but for what XLA rounds otherwise where it fuses otherwise: to 1e-5 of an array's largest value.

    A sum near 0 has the rounding errors of its terms: with Zen 4's instructions predictions up to 3.2 differ by 4.5e-6.
    """
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * max(0.1, np.abs(one).max(initial=0)))


class Printing(Model):
    """Prints what stage 1 gets: that calls the host."""

    def stage(self, number: int, h: tf.Tensor) -> tf.Tensor:
        if number == 1:
            with tf.control_dependencies([print_tensor(h)]):
                h = tf.identity(h)
        return super().stage(number, h)


def without_sample(missing: int, model: Model) -> Model:
    """The model, whose data fails at a sample."""

    def source(index: int) -> Any:
        if index == missing:
            raise KeyError("no such sample")
        return model.x[index]

    model.source = source
    return model


def changing(make: Callable[[], Model]) -> None:
    """Checks that a model which changes between one loop and devices goes on as one that never does."""
    run_on_devices("loop")
    wanted = make()
    for _ in range(3):
        wanted.run()
    model = make()
    for mode in ("devices", "loop", "devices"):
        run_on_devices(mode)
        model.run()
    same(wanted.values(), model.values())


def devices_of(variable: Any) -> list[int]:
    buffer = RESIDENCY._residents[id(host_variable(variable))].buffer  # noqa: SLF001 - where it really is
    return sorted(device.id for device in buffer.devices())


@four_ipus
@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_a_schedule_is_followed(strategy: Any, schedule: PipelineSchedule) -> None:
    with device_work() as measured:
        _, model = in_both(lambda: Model(strategy, momentum, 4, pipeline_schedule=schedule))
    assert measured.counts.steps == 2 * COUNT * REPEAT
    counts = counted()
    assert counts.passes == REPEAT and counts.timetable is not None
    assert counts.order == counts.timetable.order()
    assert counts.stash_peaks == peak_stash(counts.timetable)
    wanted = {
        (device, kind): REPEAT
        * sum(placed.device == device and placed.task.kind is kind for placed in counts.timetable.placed())
        for device in range(4)
        for kind in (TaskKind.FORWARD, TaskKind.BACKWARD, TaskKind.UPDATE)
    }
    assert dict(counts.executions) == wanted
    assert model.optimizer is not None
    slots = [v.value for v in model.optimizer.variables if len(v.shape) == 2]
    for stage in range(4):
        assert devices_of(model.weights[stage]) == [stage]
        assert devices_of(slots[stage]) == [stage]


@four_ipus
def test_weights_are_on_their_devices_alone(strategy: Any) -> None:
    run_on_devices("devices")
    RESIDENCY.forget()
    model = Model(strategy, momentum, 4).run()
    gc.collect()
    found = {(array.shape, device.id) for array in jax.live_arrays() for device in array.devices() if array.ndim == 2}
    shapes = [tuple(weight.shape) for weight in model.weights]
    assert {pair for pair in found if pair[0] in shapes} == {(shape, stage) for stage, shape in enumerate(shapes)}
    sizes = [4 * int(np.prod(shape)) for shape in shapes]
    assert [seen - 2 * size for seen, size in zip(counted().weights, sizes, strict=True)] == [4 + 8, 0, 0, 0]


def test_nothing_is_compiled_for_more_micro_batches_or_updates(strategy: Any) -> None:
    compiled: list[str] = []

    def heard(event: str, duration_secs: float, **about: str | int) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(heard)
    run_on_devices("devices")
    numbers = []
    for count, repeat in ((8, 1), (16, 3)):
        before = len(compiled)
        Model(strategy, momentum, gradient_accumulation_count=count, repeat_count=repeat).run()
        numbers.append(len(compiled) - before)
    assert numbers[0] == numbers[1] > 0


def test_a_norm_over_all_stages(strategy: Any) -> None:
    in_both(lambda: Model(strategy, clipped_adam))


def test_gradients_are_tensorflows_own(strategy: Any) -> None:
    @tf.custom_gradient
    def tripled(h: tf.Tensor) -> Any:
        return h, lambda upstream: 3 * upstream

    class Bent(Model):
        def stage(self, number: int, h: tf.Tensor) -> tf.Tensor:
            h = tripled(h) if number == 1 else h
            if number == 0:
                h = h + tf.stop_gradient(h * h)
            return super().stage(number, h)

    class Stopped(Model):
        def stage(self, number: int, h: tf.Tensor) -> tf.Tensor:
            return super().stage(number, tf.stop_gradient(h) if number == 1 else h)

    in_both(lambda: Bent(strategy, momentum))
    _, model = in_both(lambda: Stopped(strategy, momentum))
    untouched = Model(strategy, None)
    same([w.numpy() for w in untouched.weights[:1]], [w.numpy() for w in model.weights[:1]])


@four_ipus
def test_weights_in_the_loss_stay_where_they_are(strategy: Any) -> None:
    class Decayed(Model):
        def loss(self, loss: tf.Tensor) -> tf.Tensor:
            return loss + 0.01 * tf.add_n([tf.reduce_sum(w * w) for w in self.weights])

    _, model = in_both(lambda: Decayed(strategy, momentum, 4))
    assert [devices_of(weight) for weight in model.weights] == [[0], [1], [2], [3]]


def test_stages_that_share_a_device(strategy: Any) -> None:
    _, model = in_both(lambda: Model(strategy, momentum, 4, device_mapping=[0, 1, 1, 0]))
    assert [devices_of(weight) for weight in model.weights] == [[0], [1], [1], [0]]
    assert counted().executions[1, TaskKind.FORWARD] == 2 * COUNT * REPEAT


def test_inference_gives_elements_in_order(strategy: Any) -> None:
    _, model = in_both(lambda: Model(strategy, None, pipeline_schedule=PipelineSchedule.Interleaved))
    model.run()
    elements = model.elements()
    wanted = model.x[COUNT * REPEAT : 2 * COUNT * REPEAT]
    for weight in model.weights:
        wanted = np.tanh(wanted @ weight.numpy())
    np.testing.assert_allclose(elements, wanted, rtol=1e-5)
    assert [devices_of(weight) for weight in model.weights] == [[0], [1]]


def test_one_model_may_change_between_loop_and_devices(strategy: Any) -> None:
    changing(lambda: Model(strategy, momentum))


def test_an_exception_in_the_infeed_is_the_users_own(strategy: Any) -> None:
    found = []
    for mode in ("loop", "devices"):
        run_on_devices(mode)
        model = without_sample(COUNT + 3, Model(strategy, momentum))
        with pytest.raises(Exception, match="no such sample"):
            model.run()
        model.source = lambda index, model=model: model.x[index]  # type: ignore[misc]
        found.append(model.values())
    assert len(found[0][-1]) == COUNT + 3  # what had started was finished
    same(*found)
    Model(strategy, momentum).run()


@pytest.mark.usefixtures("sigint_interrupts")
@pytest.mark.parametrize("trains", [True, False])
def test_an_interrupted_run_ends_before_the_next_update_or_micro_batch(strategy: Any, trains: bool) -> None:
    run_on_devices("devices")
    model = Model(strategy, momentum if trains else None, repeat_count=20)
    asked: list[int] = []

    def samples() -> Iterator[np.ndarray]:
        for index, sample in enumerate(model.x):
            asked.append(index)
            if index == COUNT + 3:
                press_ctrl_c()
            yield sample

    one_by_one = tf.data.Options()
    one_by_one.experimental_optimization.inject_prefetch = False
    spec = tf.TensorSpec(model.x.shape[1:], tf.float32)
    data = tf.data.Dataset.from_generator(samples, output_signature=spec).with_options(one_by_one)
    model.infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data)
    with pytest.raises(KeyboardInterrupt):
        model.run()
    elements = len(model.elements())
    assert elements in ((2 * COUNT,) if trains else (COUNT + 3, COUNT + 4))
    assert asked == list(range(elements))


def test_an_infeed_that_gives_nothing_ends_the_run(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run_on_devices("devices")
    Model(strategy, momentum).run()
    monkeypatch.setenv("IPU_TF_FEED_TIMEOUT", "1")
    ended = threading.Event()
    model = Model(strategy, momentum)

    def source(index: int) -> Any:
        if index == COUNT + 3:
            ended.wait(60)
        return model.x[index]

    model.source = source
    start = time.monotonic()
    try:
        with pytest.raises(tf.errors.DeadlineExceededError, match="IPU_TF_FEED_TIMEOUT"):
            model.run()
        assert time.monotonic() - start < 50
        assert len(model.elements()) == COUNT + 3  # what had started was finished
    finally:
        ended.set()
    monkeypatch.delenv("IPU_TF_FEED_TIMEOUT")
    assert len(Model(strategy, momentum).run().elements()) == COUNT * REPEAT


@pytest.mark.parametrize("mode", ["loop", "devices"])
def test_an_exception_in_a_stage_is_the_users_own(strategy: Any, monkeypatch: pytest.MonkeyPatch, mode: Any) -> None:
    calls: list[Any] = []

    def failing(*args: Any, **_: Any) -> None:
        calls.append(args)
        if len(calls) == 4:
            raise OSError("the disk is full")

    run_on_devices(mode)
    monkeypatch.setattr("ipu_tf.lowering.importer.rules.host_calls.print", failing, raising=False)
    model = Printing(strategy, momentum)
    before = [weight.numpy() for weight in model.weights]
    with pytest.raises(OSError, match="the disk is full") as caught:
        model.run()
    assert "failing" in [entry.name for entry in caught.traceback]
    stopped = len(calls)
    assert stopped <= COUNT  # the update that it happened in was the last
    same(before, [weight.numpy() for weight in model.weights])
    model.run()
    assert len(calls) == stopped + COUNT * REPEAT
    assert any(np.any(old != new.numpy()) for old, new in zip(before, model.weights, strict=True))


def test_an_update_prints_as_often_as_in_one_loop(strategy: Any, capfd: pytest.CaptureFixture[str]) -> None:
    class Telling(keras.optimizers.SGD):
        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> Any:
            print_tensor(tf.reduce_sum(gradient), "told")
            print_tensor(tf.constant(1.0), "also told")
            return super().update_step(gradient, variable, learning_rate)

    said = []
    for mode in ("loop", "devices"):
        run_on_devices(mode)
        Model(strategy, lambda: Telling(0.1)).run()
        lines = [line.partition(": ") for line in capfd.readouterr().err.splitlines() if "told: " in line]
        said.append([(name, float(value)) for name, _, value in lines])
    assert [name for name, _ in said[0]] == ["told", "also told"] * 2 * REPEAT
    assert [name for name, _ in said[1]] == [name for name, _ in said[0]]
    np.testing.assert_allclose([v for _, v in said[1]], [v for _, v in said[0]], rtol=1e-4)


def test_pipelines_and_loops_of_one_program_follow_one_another(strategy: Any) -> None:
    """Each finds what the one before left, wherever that is: on its stages' devices, or together on one."""

    class Twice(Model):
        def run(self) -> Twice:
            tested, looped = (ipu.ipu_outfeed_queue.IPUOutfeedQueue() for _ in range(2))

            def output(loss: tf.Tensor) -> OptimizerFunctionOutput:
                return OptimizerFunctionOutput(self.optimizer, loss, variables=self.weights)

            def body() -> tf.Operation:
                return looped.enqueue(tf.add_n([tf.reduce_sum(weight) for weight in self.weights]))

            def program() -> None:
                pipeline(
                    self.stages(),
                    COUNT,
                    infeed_queue=self.infeed,
                    outfeed_queue=self.outfeed,
                    optimizer_function=output,
                )
                ipu.loops.repeat(2, body, [])
                pipeline(self.stages(), 4, infeed_queue=self.infeed, outfeed_queue=tested)

            self._strategy.run(tf.function(program, autograph=False))
            self.found = [np.asarray(tf.nest.flatten(queue.dequeue())[0]) for queue in (tested, looped)]
            return self

        def values(self) -> list[np.ndarray]:
            return [*super().values(), *self.found]

    _, model = in_both(lambda: Twice(strategy, momentum))
    assert isinstance(model, Twice)
    weights = np.sum([weight.numpy().sum() for weight in model.weights])
    np.testing.assert_allclose(model.found[1], np.full(2, weights), rtol=1e-5)
    assert [devices_of(weight) for weight in model.weights] == [[0], [1]]


def test_what_cannot_be_cut_says_so(strategy: Any) -> None:
    class Tied(Model):
        def loss(self, loss: tf.Tensor) -> tf.Tensor:
            return tf.reduce_mean(loss * self.weights[0] * self.weights[0])

    run_on_devices("devices")
    with pytest.raises(PipelineDevicesError, match="a variable of shape .3, 4. .* is used by stage 0 on device 0"):
        Tied(strategy, momentum).run()
    run_on_devices("auto")
    tied = Tied(strategy, momentum).run()
    assert any("a variable of shape (3, 4)" in text for text in pipelines_on_one_device())
    run_on_devices("loop")
    same(Tied(strategy, momentum).run().values(), tied.values())
    with pytest.raises(ValueError, match="run_on_devices takes one of"):
        run_on_devices("gpu")  # type: ignore[arg-type]


@four_ipus
def test_times_are_measured_where_asked(strategy: Any) -> None:
    run_on_devices("devices", measure=True)
    Model(strategy, momentum, 4).run()
    counts = counted()
    assert counts.timetable is not None
    assert {(one.task, one.device) for one in counts.measured} == {
        (placed.task, placed.device) for placed in counts.timetable.placed()
    }
    for device in range(4):
        times = [time for one in counts.measured if one.device == device for time in (one.start, one.end)]
        assert times == sorted(times) and times[0] >= 0
    when = {one.task: one for one in counts.measured}
    for task, one in when.items():
        towards = {TaskKind.FORWARD: -1, TaskKind.BACKWARD: 1}.get(task.kind)
        before = None if towards is None else when.get(dataclasses.replace(task, stage=task.stage + towards))
        assert before is None or before.end <= one.start or one.start == one.end
    events = chrome_trace(counts.timetable, measured=counts.measured)["traceEvents"]
    assert sum(event["ph"] == "X" and event["pid"] == 2 for event in events) == len(counts.measured)
    run_on_devices("devices")
    Model(strategy, momentum, 4).run()
    assert counted().measured == ()
