"""`StepFunction`: train, test or predict function of an IPU model, which runs executions in loops on the device.

    Keras's loop ──► StepFunction: batches of one execution ──► StepLoop on the device ──► logs or predictions

Both back ends share what is here. `TensorFlowStepFunction` and `JaxStepFunction` add Keras's calling convention, and
make the model's step a `DeviceStep`.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

from ipu_tf._config.state import graphcore_rules
from ipu_tf._loops.batch_feed import BatchFeed
from ipu_tf._loops.interruption import check_interrupts
from ipu_tf._loops.step_loop import DeviceStep, LoopOptions, StepLoop, StepLoopResult
from ipu_tf._training.replication import target
from ipu_tf.emulation import EmulationError
from keras_ipu.pipeline.run_checks import accumulates_outfeed, accumulation_count
from keras_ipu.stock import models as keras_models
from keras_ipu.training.common.async_callbacks import AsynchronousRun, current_run
from keras_ipu.training.common.epoch_iterator import ElementIterator
from keras_ipu.training.common.outputs_for_keras import ArrayFunctions, OutputsForKeras
from keras_ipu.training.common.padding import fits_padding, may_pad, padded
from keras_ipu.training.common.partial_batches import ExecutedSteps, batch_size, log_remainder, run_execution
from keras_ipu.training.common.run_ahead import StepsAhead, steps_left
from keras_ipu.training.common.step_split import (
    StepSplit,
    check_micro_batch_count,
    log_effective_batch_size,
    step_split,
)
from keras_ipu.training.common.traced_loops import TracedLoops


@dataclasses.dataclass(frozen=True)
class StepKind:
    """Kind of a model's step.

    Attributes:
        name: "train", "test" or "predict".
        training: whether it changes weights.
        predicts: whether it returns predictions, not logs.
    """

    name: str
    training: bool = False
    predicts: bool = False


RunSteps = Callable[..., tuple[StepLoopResult, list[ExecutedSteps]]]
"""`run_execution` for the batches of an execution; takes `steps` and `run_loop`."""

TRAIN, TEST, PREDICT = StepKind("train", training=True), StepKind("test"), StepKind("predict", predicts=True)


@dataclasses.dataclass(frozen=True)
class ExecutionBatches:
    """Batches of one execution.

    Attributes:
        steps: how many steps take them, on each replica.
        feed: where the device reads them.
        epoch: the epoch's iterator, whose further batches may be read ahead of Keras's loop; None for other batches.
        for_replicas: whether there may be a batch for each replica: an epoch's, not those for one call.
        ahead: whether the steps of one execution may run by the loop that runs several ahead.
    """

    steps: int
    feed: BatchFeed
    epoch: ElementIterator | None = None
    for_replicas: bool = True
    ahead: bool = True

    @property
    def most(self) -> int:
        """The most steps to run: fewer than `steps` where the epoch has fewer left."""
        return self.steps if self.epoch is None else self.epoch.most


@dataclasses.dataclass(frozen=True)
class Execution:
    """Result of an execution.

    Attributes:
        ran: how many steps ran, the new state, and the error that ended it.
        outputs: logs or predictions as Keras takes them: of the execution, then of those that ran ahead.
        replicas: how many replicas ran.
    """

    ran: StepLoopResult
    outputs: list[Any]
    replicas: int


class StepFunction(TracedLoops, abc.ABC):
    """Runs a model's train, test or predict step in loops on the device, one for each shape of batches and step split.

    Args:
        model: the model.
        kind: which of its steps.
        arrays: functions on the arrays that steps return.
    """

    def __init__(self, model: Any, kind: StepKind, arrays: ArrayFunctions) -> None:
        super().__init__()
        self._model = model
        self._kind = kind
        self._outputs = OutputsForKeras(model, kind.predicts, arrays)
        self._ahead = StepsAhead()

    @property
    def _title(self) -> str:
        """What reports call its programs."""
        return f"{self._model.name}: {self._kind.name} step"

    @abc.abstractmethod
    def _device_step(self, batch_spec: Any, state: Any, split: StepSplit) -> DeviceStep:
        """Returns the model's step for batches of a structure and shape, with updates as the step split wants them."""

    @abc.abstractmethod
    def _remainder_step(self, batches_spec: Any, state: Any, split: StepSplit) -> DeviceStep:
        """Returns a step for a tuple of batches, which makes one weight update; it returns the outputs of each."""

    @abc.abstractmethod
    def _feed(self, batches: Iterator[Any]) -> BatchFeed:
        """Returns a feed of batches that are not an epoch's."""

    def _prepared(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Returns batches that are not an epoch's as the device is fed them."""
        return batches

    def _device_state(self, state: Any, replicas: int) -> Any:
        """Returns the state that the device runs on."""
        return state

    def _batches(self, iterator: Any) -> ExecutionBatches:
        """Returns the batches of the next execution.

        Args:
            iterator: an epoch's `ElementIterator`, or any iterator over batches, of which all are used up to
                `steps_per_execution`.
        """
        if isinstance(iterator, ElementIterator):
            return ExecutionBatches(iterator.steps, iterator.feed, iterator)
        return ExecutionBatches(
            self._model.steps_per_execution, self._feed(self._prepared(iterator)), for_replicas=False
        )

    def _execute(self, batches: ExecutionBatches, state: Any = ()) -> Execution:
        """Runs one execution; or several of one step, ahead of Keras's loop.

        Raises:
            RuntimeError: if gradient accumulation does not divide the steps of the execution.
            EmulationError: if there is not a batch for each replica.
        """
        check_interrupts()
        split = self._split(batches)
        batches.feed.group = split.accumulation_count * split.replicas
        run, steps = current_run(), batches.most if split.accumulation_count == 1 else batches.steps
        # How many steps run ahead is a matter of time, and instances have to run the same.
        ahead = batches.steps == 1 and run is None and batches.ahead and split.instances == 1
        averaged = split.accumulation_count if self._kind.training and accumulates_outfeed(self._model) else 1
        loop = self._loop(
            batches.feed,
            state,
            split,
            all_outputs=ahead or self._kind.predicts or averaged > 1,
            stepwise=run is not None,
            lengths_vary=ahead,
        )
        run_steps = self._run_steps(batches, state, split, run, loop)
        if ahead:
            return self._run_ahead(loop, batches, split, run_steps)
        watch = None if run is None else run.on_step
        ran, parts = run_steps(steps=steps, run_loop=lambda now, left: loop.run(now, batches.feed, left, watch))
        outputs = [self._outputs.of_execution(parts, split.replicas, averaged)] if parts else []
        return Execution(ran, outputs, split.replicas)

    def _run_steps(
        self,
        batches: ExecutionBatches,
        state: Any,
        split: StepSplit,
        run: AsynchronousRun | None,
        loop: StepLoop,
    ) -> RunSteps:
        """Returns the function that runs so many steps by a loop, and batches that do not fill a step by themselves."""

        def run_remainder(now: Any, remainder: list[Any]) -> StepLoopResult:
            if self._may_pad(remainder, batches.feed, split):
                ran = self._run_padded(remainder[0], batches, loop, now)
            else:
                ran = self._run_remainder(remainder, state, now, split)
            return ran if run is None else run.on_remainder(ran)

        return functools.partial(
            run_execution,
            batches.feed,
            replicas=split.replicas,
            state=self._device_state(state, split.replicas),
            run_remainder=run_remainder,
        )

    def _may_pad(self, remainder: list[Any], feed: BatchFeed, split: StepSplit) -> bool:
        """Returns whether a remainder may be predicted as a full batch, with rows that are left out of the results."""
        fits = self._kind.predicts and fits_padding(remainder[0], [each.shape for each in feed.types])
        return fits and may_pad(self._model, split.all_replicas)

    def _run_padded(self, batch: Any, batches: ExecutionBatches, loop: StepLoop, now: Any) -> StepLoopResult:
        """Predicts a smaller batch by the loop of the full ones, which is compiled for as many steps as theirs."""
        size, full = batch_size(batch), [each.shape for each in batches.feed.types]
        ran = loop.run(now, self._feed(iter([padded(batch, full)])), batches.steps)
        if not ran.steps:
            return ran
        outputs = self._outputs.arrays.map_structure(lambda values: values[0][:size], ran.outputs)
        return dataclasses.replace(ran, outputs=(outputs,))

    def _run_ahead(self, loop: StepLoop, batches: ExecutionBatches, split: StepSplit, run_steps: RunSteps) -> Execution:
        """Runs an execution of one step, and further ones as long as no callback is called between them."""
        left = steps_left(batches.epoch, self._model, self._kind.name) if loop.may_run_ahead else 1
        with self._ahead.timed(left, loop.output_bytes) as steps:
            ran, parts = run_steps(steps=steps, run_loop=lambda now, left: loop.run_steps(now, batches.feed, left))
        return Execution(ran, self._outputs.of_each_step(parts, split.replicas), split.replicas)

    def _run_remainder(self, batches: list[Any], state: Any, now: Any, split: StepSplit) -> StepLoopResult:
        """Runs one step, or weight update, on batches that do not fill one; the outputs are those of each batch.

        Args:
            batches: at most as many as an update takes. With several replicas each replica computes them all.
            state: as Keras has it.
            now: what the device begins with.
            split: of full steps.
        """
        self._refuse_remainder(len(batches), split)
        log_remainder(self._model.name, tuple(map(batch_size, batches)))
        feed = self._feed(iter([tuple(batches)] * split.replicas))
        ordinal = keras_models.strategy_of(self._model).device_ordinal
        chosen = LoopOptions(ordinal, split.shards, overflow_shows=self._looks_for_overflow())
        key = ("remainder", feed.spec_name, self._state_key(state), split, chosen, target(ordinal, split.shards))
        loop = self._traced(
            key,
            feed,
            lambda: StepLoop(self._remainder_step(feed.spec(), state, split), chosen, self._title),
            batches=f"{len(batches)} that do not fill a step",
            **vars(split),
        )
        return loop.run(now, feed, 1)

    def _refuse_remainder(self, batches: int, split: StepSplit) -> None:
        """Refuses batches that do not fill a step in one of several instances: the others may have another number."""
        if split.instances > 1:
            wanted = split.accumulation_count * split.replicas
            raise EmulationError(
                f"Each of {split.instances} instances needs full batches of one size, {wanted} to a weight update. "
                f"Received: {batches} at the end of the data of {self._model.name}. Use `drop_remainder=True`, and "
                "give every instance the same number of batches."
            )

    def _finish(self, done: Execution, batches: ExecutionBatches) -> Any:
        """Returns the outputs of an execution, and leaves those of steps that ran ahead for the next calls.

        Raises:
            StopIteration: if there was no batch left.
            BaseException: what ended the execution early.
        """
        done.ran.raise_for_error()
        if done.ran.steps == 0:
            raise StopIteration
        first, *others = done.outputs
        if batches.epoch is not None and batches.epoch.first_batch is not None:
            told, batches.epoch.first_batch = batches.epoch.first_batch, None
            told.compare()
        if batches.epoch is not None:
            batches.epoch.waiting.extend(others)
        return first

    def _split(self, batches: ExecutionBatches) -> StepSplit:
        """Returns the step split of an execution."""
        training = self._kind.training
        count = accumulation_count(self._model, batches.steps) if training else 1
        check_micro_batch_count(self._model, count if training else batches.steps, training)
        split = step_split(self._model, count)
        if split.replicas > 1 and not batches.for_replicas and graphcore_rules():
            raise EmulationError(
                f"With `config.graphcore_rules = True` a model that runs as {split.replicas} replicas takes "
                f"{split.replicas} batches a step, one for each. Received: one batch. Use `fit`, `evaluate` or "
                "`predict`, or a device with fewer IPUs."
            )
        return split

    def _looks_for_overflow(self) -> bool:
        return self._kind.training and keras_models.looks_for_overflow(self._model)

    def _state_key(self, state: Any) -> Any:
        """Returns what a state's traced loop is found by; freezing a layer moves weights between its parts."""
        return tuple(map(len, state))

    def _loop(self, feed: BatchFeed, state: Any, split: StepSplit, **options: bool) -> StepLoop:
        """Returns the loop for a feed's batches, traced on first use; `options` are further `LoopOptions`."""
        ordinal = keras_models.strategy_of(self._model).device_ordinal
        chosen = LoopOptions(ordinal, split.shards, overflow_shows=self._looks_for_overflow(), **options)
        key = (feed.spec_name, self._state_key(state), split, chosen, target(ordinal, split.shards))

        def trace() -> StepLoop:
            if self._kind.training:
                shapes = (each.shape for each in feed.types)
                log_effective_batch_size(self._model.name, shapes, split.accumulation_count, split.all_replicas)
            return StepLoop(self._device_step(feed.spec(), state, split), chosen, self._title)

        return self._traced(key, feed, trace, variables=tuple(map(len, state)), **vars(split))
