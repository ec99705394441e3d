"""`pipelining_ops.pipeline`: the numbers of plain accumulation, its outfeed's elements, and its checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.eager.backprop import GradientCaptureContext
from ipu_tf.ops.grad_util_ops import capture_upstream_gradients
from ipu_tf.ops.pipelining_ops import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    pipeline,
    recomputation_checkpoint,
)
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

tf1 = tf.compat.v1
SIZES = (6, 5, 4, 3)
BATCH = 4


def kernel(index: int) -> tf.Variable:
    start = np.random.default_rng(index).normal(size=(SIZES[index], SIZES[index + 1])).astype(np.float32) / 2
    with tf1.variable_scope("model", reuse=tf1.AUTO_REUSE, use_resource=True):
        return tf1.get_variable(f"w{index}", initializer=start)


def stage_0(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
    return [tf.tanh(x @ kernel(0)), y]


def stage_1(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
    return [recomputation_checkpoint(tf.tanh(x @ kernel(1))), y]


def stage_2(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean((x @ kernel(2) - y) ** 2)


STAGES = [stage_0, stage_1, stage_2]


def samples(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    return (
        rng.normal(size=(count, BATCH, SIZES[0])).astype(np.float32),
        rng.normal(size=(count, BATCH, SIZES[-1])).astype(np.float32),
    )


def momentum() -> Any:
    return tf1.train.MomentumOptimizer(0.05, 0.9)


def run_pipeline(
    count: Any,
    repeat: int = 2,
    available: int = 4,
    make: Callable[[], Any] = momentum,
    stages: Sequence[Any] = STAGES,
    outfeed: ipu.ipu_outfeed_queue.IPUOutfeedQueue | None = None,
    optimizer_function: Callable[..., Any] | None = None,
    feed: Any = None,
    **options: Any,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Runs once; returns the outfeed's elements and every variable."""

    def optimizer(loss: tf.Tensor) -> OptimizerFunctionOutput:
        return OptimizerFunctionOutput(make(), loss)

    with ipus(available), tf.Graph().as_default(), device_work() as work:
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(samples(64)).repeat())
        out = outfeed or ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        inputs = [tf1.placeholder(tf.int32, [])] if count is None else []

        def program(*tensors: tf.Tensor) -> tf.Operation:
            return pipeline(
                stages,
                tensors[0] if tensors else count,
                repeat_count=repeat,
                infeed_queue=queue,
                outfeed_queue=out,
                optimizer_function=optimizer_function or optimizer,
                **options,
            )

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(program, inputs)
        dequeued = out.dequeue()
        with tf1.Session() as session:
            session.run([tf1.global_variables_initializer(), queue.initializer])
            session.run(run, {inputs[0]: feed} if inputs else {})
            elements = session.run(dequeued)
            values = {v.name: session.run(v) for v in tf1.global_variables()}
    assert work.counts.executions == 1
    return elements, values


def expected(count: int, repeat: int = 2, replicas: int = 1, mean: bool = False) -> tuple[np.ndarray, dict[str, Any]]:
    """Plain TensorFlow: micro-batch by micro-batch, one update for `count` of them."""
    with tf.Graph().as_default():
        xs, ys = (tf1.placeholder(tf.float32, [None, *array.shape[1:]]) for array in samples(1))
        losses = tf.map_fn(lambda pair: stage_2(*stage_1(*stage_0(*pair))), (xs, ys), fn_output_signature=tf.float32)
        train = momentum().minimize(tf.reduce_sum(losses) / (count if mean else 1) / replicas)
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            shown = []
            for update in range(repeat):
                part = slice(update * count * replicas, (update + 1) * count * replicas)
                fed = {xs: samples(64)[0][part], ys: samples(64)[1][part]}
                shown.append(session.run([losses, train], fed)[0])
            return np.concatenate(shown), {v.name: session.run(v) for v in tf1.global_variables()}


def assert_same(given: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert set(given) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(given[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("schedule", "mapping", "available", "count"),
    [
        (PipelineSchedule.Grouped, None, 4, 6),
        (PipelineSchedule.Grouped, [0, 1, 0], 2, 12),
        (PipelineSchedule.Interleaved, None, 4, 6),
        (PipelineSchedule.Sequential, [0, 0, 0], 1, 5),
        (None, [-1, 0, 1], 2, 6),
    ],
)
@pytest.mark.parametrize("recomputation", [None, RecomputationMode.RecomputeAndBackpropagateInterleaved])
def test_schedules_and_mappings_do_not_change_the_numbers(
    schedule: Any, mapping: Any, available: int, count: int, recomputation: Any
) -> None:
    if schedule is PipelineSchedule.Interleaved and recomputation is not None:
        recomputation = RecomputationMode.RecomputeThenBackpropagate
    options = {"pipeline_schedule": schedule, "device_mapping": mapping, "recomputation_mode": recomputation}
    losses, values = run_pipeline(count, available=available, outfeed_loss=True, **options)
    wanted, variables = expected(count)
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert_same(values, variables)


@pytest.mark.parametrize("method", ["MEAN", "RUNNING_MEAN"])
def test_means_of_gradients(method: str) -> None:
    _, values = run_pipeline(6, outfeed_loss=True, reduction_method=method)
    assert_same(values, expected(6, mean=True)[1])


def test_every_micro_batch_reaches_the_gradient() -> None:
    """Leaving one out of the expectation makes a difference that the comparison sees."""
    _, values = run_pipeline(6, repeat=1, outfeed_loss=True)
    assert_same(values, expected(6, repeat=1)[1])
    with pytest.raises(AssertionError):
        assert_same(values, expected(5, repeat=1)[1])


def test_a_pipeline_of_two_replicas() -> None:
    make = lambda: ipu.optimizers.CrossReplicaOptimizer(momentum())  # noqa: E731 - reads as what it is
    losses, values = run_pipeline(6, available=8, make=make, outfeed_loss=True)
    wanted, variables = expected(6, replicas=2)
    np.testing.assert_allclose(losses.ravel(), wanted, rtol=1e-5)
    assert losses.shape == (12, 2)
    assert_same(values, variables)


def test_a_count_that_is_a_tensor() -> None:
    losses, values = run_pipeline(None, feed=6, outfeed_loss=True)
    wanted, variables = expected(6)
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert_same(values, variables)


def test_a_batch_in_parts_counts_as_so_many_more_micro_batches() -> None:
    _, values = run_pipeline(3, available=1, outfeed_loss=True, batch_serialization_iterations=4)
    assert_same(values, expected(12)[1])


def test_accumulated_elements_are_sums_once_an_update() -> None:
    options = {"accumulate_outfeed": True, "accumulate_outfeed_dtype": tf.float32}
    losses, _ = run_pipeline(6, outfeed_loss=True, **options)
    np.testing.assert_allclose(losses, expected(6)[0].reshape(2, 6).sum(1), rtol=1e-5)
    (in_a_list,), _ = run_pipeline(6, **options)
    np.testing.assert_array_equal(in_a_list, losses)


def test_masked_outputs_stay_on_the_device() -> None:
    def last(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return stage_2(x, y), tf.reduce_sum(y)

    def optimizer(loss: tf.Tensor, _: tf.Tensor) -> OptimizerFunctionOutput:
        return OptimizerFunctionOutput(momentum(), loss)

    shown, _ = (
        run_pipeline(6, stages=[stage_0, stage_1, last], optimizer_function=optimizer, outfeed_mask=[True, False]),
        None,
    )
    elements = shown[0]
    assert len(elements) == 1
    np.testing.assert_allclose(elements[0], samples(64)[1][:12].sum((1, 2)), rtol=1e-4)


def test_parallel_stages_take_the_same_and_give_all() -> None:
    def left(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x @ kernel(0))

    def right(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return y

    stages = [[left, right], stage_1, stage_2]
    losses, values = run_pipeline(12, available=4, stages=stages, device_mapping=[[0, 1], 2, 3], outfeed_loss=True)
    wanted, variables = expected(12)
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert_same(values, variables)


def test_inference_gives_what_the_last_stage_gives() -> None:
    out = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with ipus(2), tf.Graph().as_default(), device_work() as work:
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices({"x": samples(8)[0]}).repeat())
        extra = tf.constant(3.0)

        def first(scale: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
            return x * scale

        def second(x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"sum": tf.reduce_sum(x, -1), "double": x * 2.0}

        def program(scale: tf.Tensor) -> tf.Operation:
            return pipeline([first, second], 4, repeat_count=2, inputs=[scale], infeed_queue=queue, outfeed_queue=out)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(program, [extra])
        dequeued = out.dequeue()
        with tf1.Session() as session:
            session.run(queue.initializer)
            session.run(run)
            elements = session.run(dequeued)
    np.testing.assert_allclose(elements["sum"], 3 * samples(8)[0].sum(-1), rtol=1e-5)
    np.testing.assert_allclose(elements["double"], 6 * samples(8)[0], rtol=1e-6)
    assert work.counts.steps == 8


@pytest.mark.parametrize("accumulate", [True, False])
def test_captured_gradients_are_given_once_an_update(accumulate: bool) -> None:
    kept = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def watched(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        return [capture_upstream_gradients(tf.tanh(x @ kernel(1)), tag="tanh"), y]

    def optimizer(loss: tf.Tensor) -> OptimizerFunctionOutput:
        with GradientCaptureContext() as context:
            return OptimizerFunctionOutput(
                momentum(), loss, gradient_capture_context=context, captured_gradient_outfeed=kept
            )

    run_pipeline(
        6,
        stages=[stage_0, watched, stage_2],
        optimizer_function=optimizer,
        outfeed_loss=True,
        gradient_accumulation_for_captured_grads=accumulate,
    )
    (elements,) = kept.dequeue()["tanh"]
    assert elements.shape == (2, BATCH, SIZES[2])
    assert np.abs(elements.numpy()).max() > 0


def simple(*_: Any) -> tf.Tensor:
    return tf.constant(1.0)


TWO = [simple, simple]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"gradient_accumulation_count": None}, ValueError, "gradient_accumulation_count must be specified"),
        ({"gradient_accumulation_count": -1}, ValueError, "gradient_accumulation_count must be >= 0"),
        ({"gradient_accumulation_count": 2**31}, ValueError, "gradient_accumulation_count must be < max int32"),
        (
            {"batch_serialization_iterations": 2, "reduction_method": "MEAN", "optimizer_function": simple},
            ValueError,
            "batch_serialization_iterations != 1 is only supported when reduction_method",
        ),
        ({"continuous_weight_updates": True}, NotImplementedError, "Continuous weight updates are currently not"),
        ({"pipeline_schedule": 1}, TypeError, "not a member of the PipelineSchedule enumeration"),
        (
            {"batch_serialization_iterations": 2, "pipeline_schedule": PipelineSchedule.Grouped},
            NotImplementedError,
            "only supported with the `Sequential` schedule",
        ),
        ({"recomputation_mode": 1}, TypeError, "not a member of the RecomputationMode enumeration"),
        ({"computational_stages": simple}, TypeError, "computational_stages argument needs to be a list or a tuple"),
        ({"infeed_queue": 1}, TypeError, "infeed_queue is not an instance of"),
        ({"outfeed_queue": 1}, TypeError, "outfeed_queue is not an instance of"),
        ({"computational_stages": [simple]}, ValueError, "requires at least two computational stages"),
        ({"device_mapping": 1}, TypeError, "device_mapping argument needs to be a list or a tuple"),
        ({"device_mapping": [0]}, ValueError, "Each stage must be mapped to an IPU: 1 mappings != 2 stages"),
        (
            {
                "device_mapping": [0, 0],
                "pipeline_schedule": PipelineSchedule.Interleaved,
                "optimizer_function": simple,
            },
            NotImplementedError,
            "The pipelining schedule 'Interleaved' does not currently support multiple pipeline stages",
        ),
        (
            {"device_mapping": [0, 1], "batch_serialization_iterations": 2},
            NotImplementedError,
            "all the pipeline stages need to be mapped to a single IPU",
        ),
        (
            {"forward_propagation_stages_poplar_options": 1},
            TypeError,
            "forward_propagation_stages_poplar_options must be a list or a tuple of PipelineStageOptions",
        ),
        (
            {"forward_propagation_stages_poplar_options": [PipelineStageOptions()]},
            ValueError,
            "of length 2 .same number as the number of computational stages. but is 1",
        ),
        (
            {"forward_propagation_stages_poplar_options": [1, 2]},
            TypeError,
            "Expected all elements of forward_propagation_stages_poplar_options to be of type",
        ),
        (
            {"weight_update_poplar_options": 1, "optimizer_function": simple},
            TypeError,
            "weight_update_poplar_options to be of type PipelineStageOptions",
        ),
        ({"outfeed_mask": [True]}, ValueError, "An optimizer_function must be provided when outfeed_mask is set"),
        ({"outfeed_loss": True}, ValueError, "An optimizer_function must be provided when outfeed_loss is True"),
        (
            {"outfeed_loss": True, "outfeed_mask": [True], "optimizer_function": simple},
            ValueError,
            "Only one of `outfeed_loss` and `outfeed_mask` can be set",
        ),
        ({"accumulate_outfeed": True}, ValueError, "An outfeed_queue must be provided when accumulate_outfeed is True"),
        (
            {
                "accumulate_outfeed": True,
                "outfeed_queue": ipu.ipu_outfeed_queue.IPUOutfeedQueue(ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST),
            },
            ValueError,
            "To accumulate the outfeed, it must be in IPUOutfeedMode ALL",
        ),
        (
            {"replicated_optimizer_state_sharding": True, "offload_weight_update_variables": False},
            ValueError,
            "optimizer state must be offloaded",
        ),
        (
            {"computational_stages": [[simple, simple], simple], "device_mapping": [[0], 1]},
            ValueError,
            "the device mapping must also be a list of device IDs, of the same length",
        ),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        pipeline(**{"computational_stages": TWO, "gradient_accumulation_count": 4, **arguments})


@pytest.mark.parametrize(
    ("count", "schedule", "training", "divisor"),
    [(7, PipelineSchedule.Grouped, True, 6), (4, PipelineSchedule.Interleaved, True, 3), (3, None, True, 6)],
)
def test_counts_that_a_schedule_cannot_run(count: int, schedule: Any, training: bool, divisor: int) -> None:
    wanted = f"The number of iterations of the pipeline must be a multiple of {divisor}, but it is {count}"
    with pytest.raises(tf.errors.FailedPreconditionError, match=wanted):
        run_pipeline(count, pipeline_schedule=schedule, outfeed_loss=True)


@pytest.mark.parametrize("count", [4, 9, 0])
def test_a_tensor_that_a_schedule_cannot_run(count: int) -> None:
    with pytest.raises(tf.errors.FailedPreconditionError) as caught:
        run_pipeline(None, feed=count, outfeed_loss=True)
    wanted = "Check that pipeline depth is divisible by the overlap length (6) and pipeline depth is >= 6."
    assert f"Pipeline depth is invalid. {wanted}" in str(caught.value)


def test_counts_with_input_and_output_tiles() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.io_tiles.num_io_tiles = 32
    config.io_tiles.place_ops_on_io_tiles = True
    config.configure_ipu_system()

    def request(count: int) -> Any:
        run = tf.function(lambda: pipeline(TWO, count, outfeed_queue=queue) and None, autograph=False)
        return ipu.ipu_strategy.IPUStrategy().run(run)

    try:
        queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        request(5)
        with pytest.raises(tf.errors.FailedPreconditionError, match="must be at least 4, but it is 3. This number"):
            request(3)
    finally:
        ipu.config.reset_ipu_configuration()


def test_a_variable_belongs_to_one_ipu() -> None:
    def tied(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        return [tf.tanh(x @ kernel(1)) + tf.reduce_mean(kernel(0)), y]

    stages = [stage_0, tied, stage_2]
    text = "'model/w0(:0)?' is used by stage 0 on IPU 0 and by stage 1 on IPU 1"
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        run_pipeline(6, stages=stages, outfeed_loss=True)
    run_pipeline(6, stages=stages, outfeed_loss=True, device_mapping=[0, 0, 1])
    run_pipeline(6, stages=stages, outfeed_loss=True, device_mapping=[0, -1, 1])


def test_outputs_without_an_outfeed_are_refused() -> None:
    with ipus(2) as strategy, pytest.raises(ValueError, match="has tensor outputs.*no outfeed_queue has been provided"):
        strategy.run(tf.function(lambda: pipeline([simple, simple], 4) and None, autograph=False))


def test_a_mask_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="has 1 outputs, but the `outfeed_mask` has elements 2"):
        run_pipeline(6, outfeed_mask=[True, False])


def test_a_stage_may_not_use_a_tensor_of_the_graph_around_it() -> None:
    with ipus(2), tf.Graph().as_default():
        out = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def program(outer: tf.Tensor) -> tf.Operation:
            return pipeline([lambda: tf.constant(1.0), lambda x: x + outer], 4, outfeed_queue=out)

        with (
            pytest.raises(ValueError, match="Trying to capture the tensor .* which is not a resource"),
            ipu.scopes.ipu_scope("/device:IPU:0"),
        ):
            ipu.ipu_compiler.compile(program, [tf1.placeholder(tf.float32, [])])


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"opt": 1}, TypeError, "opt must be a TensorFlow Optimizer or Keras OptimizerV2 object"),
        ({"loss": 1}, TypeError, "loss must be a TensorFlow Tensor object"),
        ({"compute_gradients_args": [1]}, TypeError, "compute_gradients_args must be a tuple"),
        ({"compute_gradients_kwargs": (1,)}, TypeError, "compute_gradients_kwargs must be a dict"),
        ({"apply_gradients_args": [1]}, TypeError, "apply_gradients_args must be a tuple"),
        ({"apply_gradients_kwargs": (1,)}, TypeError, "apply_gradients_kwargs must be a dict"),
        ({"variables": 1}, TypeError, "variables must be a tuple or list"),
        ({"variables": [1]}, ValueError, "variables may only be used with OptimizerV2"),
        ({"tape": 1}, TypeError, "tape must be a GradientTape"),
        ({"tape": tf.GradientTape()}, ValueError, "tape may only be used with OptimizerV2"),
        ({"gradient_capture_context": 1}, TypeError, "gradient_capture_context must be an"),
        ({"captured_gradient_outfeed": 1}, TypeError, "captured_gradient_outfeed must be an instance of"),
        (
            {"opt": tf.keras.optimizers.SGD(), "compute_gradients_args": (1,)},
            ValueError,
            "compute_gradients_args may not be used with OptimizerV2 instances",
        ),
        (
            {"opt": tf.keras.optimizers.SGD(), "compute_gradients_kwargs": {"a": 1}},
            ValueError,
            "compute_gradients_kwargs may not be used with OptimizerV2 instances",
        ),
        (
            {"opt": tf.keras.optimizers.SGD(), "variables": [1], "tape": tf.GradientTape()},
            ValueError,
            "tape may not be used when OptimizerFunctionOutput.variables is nonempty",
        ),
        (
            {
                "opt": tf.keras.optimizers.SGD(),
                "tape": tf.GradientTape(),
                "gradient_capture_context": GradientCaptureContext(),
            },
            ValueError,
            "gradient_capture_context may not be used when OptimizerFunctionOutput.tape is nonempty",
        ),
    ],
)
def test_optimizer_outputs_that_are_refused(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        OptimizerFunctionOutput(**{"opt": momentum(), "loss": tf.constant(1.0), **arguments})


def test_a_keras_optimizer_trains_what_it_is_given() -> None:
    start = np.float32(2.0)
    out = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with ipus(2) as strategy, strategy.scope(), device_work() as work:
        weight = tf.Variable(start)
        optimizer = tf.keras.optimizers.SGD(0.1)
        optimizer.build([weight])

        def trains(loss: tf.Tensor) -> OptimizerFunctionOutput:
            return OptimizerFunctionOutput(optimizer, loss, variables=[weight])

        @tf.function(autograph=False)
        def program() -> None:
            pipeline(
                [lambda: weight * 3.0, lambda x: x * x], 4, repeat_count=2, optimizer_function=trains, outfeed_queue=out
            )

        strategy.run(program)
    value = start
    for _ in range(2):
        value -= 0.1 * 4 * 18 * value
    np.testing.assert_allclose(weight.numpy(), value, rtol=1e-5)
    assert int(optimizer.iterations.numpy()) == 2
    assert work.counts.steps == 8


def test_a_variable_that_the_loss_does_not_see_has_a_gradient_of_zeros() -> None:
    def unseen(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.reduce_sum(y), x @ kernel(0)

    def optimizer(loss: tf.Tensor, _: tf.Tensor) -> OptimizerFunctionOutput:
        return OptimizerFunctionOutput(momentum(), loss)

    stages = [unseen, lambda loss, x: (loss, x)]
    elements, values = run_pipeline(
        4, available=2, stages=stages, optimizer_function=optimizer, outfeed_mask=[False, True]
    )
    np.testing.assert_allclose(elements[0], samples(64)[1][:8].sum((1, 2)), rtol=1e-4)
    start = np.random.default_rng(0).normal(size=(SIZES[0], SIZES[1])).astype(np.float32) / 2
    np.testing.assert_array_equal(values["model/w0:0"], start)
