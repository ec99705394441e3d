"""`IPUEstimator` against plain TF1 training and numpy: numbers, steps, checkpoints, feeds, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf import tf_estimator
from ipu_tf.device.feeds import queues
from ipu_tf.emulation import EmulationError
from tests.helpers import estimator_programs as programs
from tests.helpers.device_counts import device_work

tf1 = tf.compat.v1
EstimatorSpec, ModeKeys = tf_estimator.EstimatorSpec, tf_estimator.ModeKeys
IPUEstimatorSpec = ipu.ipu_estimator.IPUEstimatorSpec


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    """No configuration outlives a test, and no queue an estimator."""
    before = len(queues._infeeds), len(queues._outfeeds)
    yield
    ipu.config.reset_ipu_configuration()
    assert (len(queues._infeeds), len(queues._outfeeds)) == before


@pytest.mark.parametrize(("optimizer", "loop"), [("sgd", 1), ("sgd", 4), ("adam", 2)])
def test_training_equals_a_plain_loop(optimizer: str, loop: int) -> None:
    mine = programs.estimator(loop, params={"optimizer": optimizer})
    with device_work() as work:
        mine.train(programs.input_fn, steps=8)
    losses, variables = programs.plain_training(optimizer, 8)
    assert (work.counts.executions, work.counts.steps) == (8 // loop, 8)
    assert mine.get_variable_value("global_step") == 8
    for name, value in variables.items():
        np.testing.assert_allclose(mine.get_variable_value(name), value, rtol=1e-5, atol=1e-6)
    # What is reported is the mean over the loop.
    np.testing.assert_allclose(programs.logged_losses(mine.model_dir), np.reshape(losses, [-1, loop]).mean(1), 1e-5)


def test_training_continues_from_its_checkpoint() -> None:
    mine = programs.estimator(2)
    mine.train(programs.input_fn, steps=2)
    mine.train(programs.input_fn, max_steps=5)
    assert mine.get_variable_value("global_step") == 6  # whole loops
    with device_work() as work:
        mine.train(programs.input_fn, max_steps=6)
    assert work.counts.executions == 0


def test_two_replicas_train_as_one_with_their_batches_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def model(features: Any, labels: Any, mode: str) -> Any:
        loss = programs.squared_error(labels, features)
        optimizer = ipu.optimizers.CrossReplicaOptimizer(programs.OPTIMIZERS["sgd"]())
        metrics = {"largest": tf1.metrics.mean(tf.reduce_max(features))}
        return EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss), eval_metric_ops=metrics)

    monkeypatch.setenv("TF_IPU_COUNT", "2")
    options = ipu.config.IPUConfig()
    options.auto_select_ipus = 2
    mine = ipu.ipu_estimator.IPUEstimator(model, config=programs.config(2, num_replicas=2, ipu_options=options))
    mine.train(programs.input_fn, steps=4)
    losses, variables = programs.plain_training("sgd", 4, replicas=2)
    for name, value in variables.items():
        np.testing.assert_allclose(mine.get_variable_value(name), value, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(programs.logged_losses(mine.model_dir), np.reshape(losses, [2, 2]).mean(1), 1e-5)
    batches = programs.samples()[0].reshape(8, -1)
    assert mine.evaluate(programs.input_fn, steps=4)["largest"] == pytest.approx(batches.max(1).mean(), 1e-5)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_metric_that_is_a_vector(replicas: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def model(features: Any, labels: Any, mode: str) -> Any:
        metrics = {"largest": tf1.metrics.mean_tensor(tf.reduce_max(features, 0))}
        return EstimatorSpec(mode, loss=programs.squared_error(labels, features), eval_metric_ops=metrics)

    monkeypatch.setenv("TF_IPU_COUNT", str(replicas))
    options = ipu.config.IPUConfig()
    options.auto_select_ipus = replicas
    config = programs.config(2, num_replicas=replicas, ipu_options=options)
    found = ipu.ipu_estimator.IPUEstimator(model, config=config).evaluate(programs.input_fn, steps=8 // replicas)
    batches = programs.samples()[0].reshape(8, programs.BATCH, -1)
    np.testing.assert_allclose(found["largest"], batches.max(1).mean(0), rtol=1e-5)


@pytest.mark.parametrize("loop", [1, 4])
def test_metrics_whose_update_is_not_their_value(loop: int) -> None:
    def model(features: Any, labels: Any, mode: str) -> Any:
        largest, update = tf1.metrics.mean(tf.reduce_max(features))
        least, least_update = tf1.metrics.mean(tf.reduce_min(features))
        positive = tf.cast(features[:, 0] > 0, tf.int32)
        confusion = tf1.metrics.mean_iou(tf.cast(labels[:, 0] > 0, tf.int32), positive, 2)
        metrics = {
            "computed": (tf.exp(largest), update),
            "of both": (largest - least, tf.group(update, least_update)),
            "of its update": (update * 2.0, update),
            "confusion": confusion,
        }
        return EstimatorSpec(mode, loss=programs.squared_error(labels, features), eval_metric_ops=metrics)

    found = ipu.ipu_estimator.IPUEstimator(model, config=programs.config(loop)).evaluate(programs.once, steps=8)
    features, labels = (each.reshape(8, programs.BATCH, -1) for each in programs.samples())
    largest, least = features.max((1, 2)).mean(), features.min((1, 2)).mean()
    both, either = [], []
    for sign in (1, -1):
        of_labels, of_features = sign * labels[..., 0] > 0, sign * features[..., 0] > 0
        both.append((of_labels & of_features).sum())
        either.append((of_labels | of_features).sum())
    assert found["computed"] == pytest.approx(np.exp(largest), 1e-5)
    assert found["of both"] == pytest.approx(largest - least, 1e-5)
    assert found["of its update"] == pytest.approx(2 * largest, 1e-5)
    assert found["confusion"] == pytest.approx(np.mean(np.divide(both, either)), 1e-5)


def test_data_that_ends_too_early_is_an_error_and_saves_what_was_trained() -> None:
    mine = programs.estimator(4)
    with pytest.raises(tf.errors.OutOfRangeError, match=r"before the steps of this training did.*\.repeat\(\)"):
        mine.train(programs.once, steps=12)
    assert mine.get_variable_value("global_step") == 8
    _, variables = programs.plain_training("sgd", 8)
    np.testing.assert_allclose(mine.get_variable_value("linear/w"), variables["linear/w"], rtol=1e-5)
    with pytest.raises(tf.errors.OutOfRangeError, match="before the steps of this evaluation did"):
        mine.evaluate(programs.once, steps=12)


@pytest.mark.parametrize("loop", [1, 4])
def test_evaluation_on_the_device(loop: int) -> None:
    mine = programs.estimator(loop)
    mine.train(programs.input_fn, steps=4)
    with device_work() as work:
        results = mine.evaluate(programs.once, steps=8, name="again")
    x, y = programs.samples()
    errors = x @ mine.get_variable_value("linear/w") + mine.get_variable_value("linear/b") - y
    assert results["error"] == pytest.approx(np.abs(errors).mean(), rel=1e-5)
    assert results["loss"] == pytest.approx(np.square(errors).mean(), rel=1e-5)
    assert results["global_step"] == 4
    assert work.counts.steps == 8
    assert programs.logged_losses(mine.eval_dir("again")) == [pytest.approx(results["loss"])]


@pytest.mark.parametrize("kind", [list, dict])
def test_evaluation_on_the_host(kind: type) -> None:
    seen = []

    def metrics(features: Any, outputs: Any) -> Any:
        seen.append(features.shape.as_list())
        return {"mean": tf1.metrics.mean(features), "outputs": tf1.metrics.mean(outputs)}

    def model(features: Any, labels: Any, mode: str) -> Any:
        outputs = programs.predicted(features)
        tensors = [features, outputs] if kind is list else {"outputs": outputs, "features": features}
        loss = tf.reduce_mean(outputs - labels)
        return IPUEstimatorSpec(mode, loss=loss, eval_metrics=(metrics, tensors))

    results = programs.estimator(2, model).evaluate(programs.once, steps=8)
    x, _ = programs.samples()
    assert seen == [[None, programs.BATCH, 3]]
    assert results["mean"] == pytest.approx(x.mean(), rel=1e-4)
    assert results["outputs"] == pytest.approx(x.sum(1).mean(), rel=1e-4)


def test_a_training_step_that_is_built_to_evaluate_does_not_run() -> None:
    def model(features: Any, labels: Any, mode: str) -> Any:
        if mode == ModeKeys.PREDICT:
            labels = tf.zeros([programs.BATCH, 1])
        loss = programs.squared_error(labels, features)
        step = programs.OPTIMIZERS["adam"]().minimize(loss)
        outputs = tf.zeros([1]) + programs.predicted(tf.ones([1, 3]))
        metrics = {"output": tf1.metrics.mean(outputs)}
        return EstimatorSpec(mode, loss=loss, train_op=step, predictions=outputs, eval_metric_ops=metrics)

    mine = programs.estimator(4, model)
    assert mine.evaluate(programs.once, steps=8)["output"] == 3.0
    # The batches are taken, though these predictions do not use them.
    np.testing.assert_array_equal(list(mine.predict(programs.once)), [[3.0]] * 8)


def test_prediction() -> None:
    mine = programs.estimator(2)
    mine.train(programs.input_fn, steps=2)
    x, _ = programs.samples()
    expected = x @ mine.get_variable_value("linear/w") + mine.get_variable_value("linear/b")
    with device_work() as work:
        found = list(mine.predict(programs.once))
    assert work.counts.steps == 8
    np.testing.assert_allclose([item["y"] for item in found], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal([item["x"] for item in found], x)
    [batch] = mine.predict(programs.once, predict_keys=["y"], yield_single_examples=False, num_predictions=1)
    assert list(batch) == ["y"]
    np.testing.assert_allclose(batch["y"], expected[: programs.BATCH], rtol=1e-5, atol=1e-6)


def test_prediction_runs_only_as_far_as_it_is_asked_and_leaves_no_graph_behind() -> None:
    outputs = programs.estimator(1).predict(programs.once)
    graph = tf1.get_default_graph()
    with device_work() as work:
        next(outputs)
    assert work.counts.executions == 1
    assert tf1.get_default_graph() is graph
    outputs.close()


def test_no_prediction_is_lost_where_the_data_ends_within_a_loop() -> None:
    x, _ = programs.samples()
    found = [item["x"] for item in programs.estimator(3).predict(programs.once)]
    np.testing.assert_array_equal(found, x)


def test_layers_are_named_alike_in_every_graph() -> None:
    def model(features: Any, labels: Any, mode: str) -> Any:
        hidden = keras.layers.Dense(2)(features)
        outputs = keras.layers.Dense(1)(hidden)
        loss = tf.reduce_mean(tf.square(outputs - labels))
        step = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
        return EstimatorSpec(mode, loss=loss, train_op=step, eval_metric_ops={"mean": tf1.metrics.mean(outputs)})

    before = keras.layers.Dense(1).name.removeprefix("dense").removeprefix("_")
    mine = programs.estimator(2, model)
    mine.train(programs.input_fn, steps=2)
    trained = mine.evaluate(programs.once, steps=8)
    # Had the layers of the second graph other names, the checkpoint would not fit.
    values = {name: mine.get_variable_value(name) for name in mine.get_variable_names()}
    (bias, kernel), (last_bias, last_kernel) = [
        [values[f"{layer}/{part}"] for part in ("bias", "kernel")]
        for layer in sorted({name.rpartition("/")[0] for name in values if "/" in name})
    ]
    expected = (programs.samples()[0] @ kernel + bias) @ last_kernel + last_bias
    assert trained["mean"] == pytest.approx(expected.mean(), rel=1e-4)
    assert keras.layers.Dense(1).name == f"dense_{int(before or 0) + 1}"


def test_a_host_call_gets_tensors_of_the_device_after_each_step() -> None:
    def on_host(first: Any, second: Any) -> Any:
        total = tf1.get_variable("total", initializer=0.0, use_resource=True)
        return total.assign_add(tf.reduce_sum(first) + second)

    def model(features: Any, labels: Any, mode: str) -> Any:
        loss = tf.reduce_sum(labels)
        assert loss.device == "/device:IPU:0"
        return IPUEstimatorSpec(mode, loss=loss, train_op=loss, host_call=(on_host, [features, loss]))

    mine = programs.estimator(1, model)
    mine.train(programs.input_fn, steps=3)
    x, y = (values[: 3 * programs.BATCH] for values in programs.samples())
    np.testing.assert_allclose(mine.get_variable_value("total"), x.sum() + y.sum(), rtol=1e-5)


def test_a_warm_start() -> None:
    first = programs.estimator(2)
    first.train(programs.input_fn, steps=4)
    second = programs.estimator(2, warm_start_from=first.model_dir)
    second.train(programs.input_fn, steps=2)
    third = programs.estimator(2)
    third.train(programs.input_fn, steps=2)
    assert second.get_variable_value("global_step") == 2
    # Like steps 5 and 6 of the first on the data of steps 1 and 2, which these are not for the third.
    w = "linear/w"
    moved = np.abs(second.get_variable_value(w) - first.get_variable_value(w)).max()
    assert moved < np.abs(second.get_variable_value(w) - third.get_variable_value(w)).max()


def test_hooks_of_the_model_and_of_the_caller() -> None:
    class Counter(tf.compat.v1.train.SessionRunHook):
        runs = 0

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.runs += 1

    own = {mode: Counter() for mode in (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)}
    given = Counter()

    def model(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = programs.model_fn(features, labels, mode, {"optimizer": "sgd"})
        names = ("training_hooks", "evaluation_hooks", "prediction_hooks")
        return spec._replace(**{name: [hook] for name, hook in zip(names, own.values(), strict=True)})

    mine = programs.estimator(2, model)
    mine.train(programs.input_fn, steps=6, hooks=[given])
    mine.evaluate(programs.once, steps=4, hooks=[given])
    list(mine.predict(programs.once, hooks=[given], num_predictions=9))
    assert [hook.runs for hook in own.values()] == [3, 2, 2]
    assert given.runs == 7


@pytest.mark.parametrize("loop", [1, 2])
def test_the_global_step_can_be_read_but_not_changed(loop: int) -> None:
    def reads(features: Any, labels: Any, mode: str) -> Any:
        step = tf.cast(tf1.train.get_global_step(), tf.float32)
        return EstimatorSpec(mode, loss=tf.reduce_sum(labels), eval_metric_ops={"step": tf1.metrics.mean(step)})

    def changes(features: Any, labels: Any, mode: str) -> Any:
        loss = programs.squared_error(labels, features)
        step = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=tf1.train.get_global_step())
        return EstimatorSpec(mode, loss=loss, train_op=step)

    # It advances on the host, after each run.
    results = programs.estimator(loop, reads).evaluate(programs.once, steps=4)
    assert results["step"] == np.mean([step // loop * loop for step in range(4)])
    assert results["global_step"] == 0
    with pytest.raises(ValueError, match="Illegal increment of the `global_step` variable in the `model_fn`"):
        programs.estimator(loop, changes).train(programs.input_fn, steps=loop)


def test_the_batch_size_of_all_replicas_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    class Given(Exception):
        pass

    def inputs(params: dict[str, Any]) -> Any:
        raise Given(params.get("batch_size"))

    options = ipu.config.IPUConfig()
    options.auto_select_ipus = 2
    mine = ipu.ipu_estimator.IPUEstimator(
        programs.model_fn,
        config=programs.config(num_replicas=2, ipu_options=options),
        train_batch_size=8,
        eval_batch_size=4,
        params={},
    )
    calls: dict[Callable[[], Any], Any] = {
        lambda: mine.train(inputs, steps=1): 4,
        lambda: mine.evaluate(inputs, steps=1): 2,
        lambda: next(mine.predict(inputs)): None,
    }
    for call, size in calls.items():
        with pytest.raises(Given) as raised:
            call()
        assert raised.value.args == (size,)
    with pytest.raises(ValueError, match=r"input_fn must have params argument to receive params\['batch_size'\]"):
        mine.train(programs.input_fn, steps=1)


def _spec(**changes: Any) -> Callable[..., Any]:
    """A model whose spec lacks or has something wrong."""

    def model(features: Any, labels: Any, mode: str) -> Any:
        loss = tf.reduce_sum(features)
        arguments = {"loss": loss, "train_op": loss, "predictions": features}
        arguments |= {name: value(loss) if callable(value) else value for name, value in changes.items()}
        return IPUEstimatorSpec(mode, **arguments)

    return model


def _metrics(loss: Any) -> Any:
    return {"mean": tf1.metrics.mean(loss)}


WRONG_MODELS: dict[str, tuple[str, Callable[..., Any], type[Exception]]] = {
    "Missing loss": ("train", _spec(loss=None), ValueError),
    "Missing train_op": ("train", _spec(train_op=None), ValueError),
    "Missing predictions": ("predict", _spec(predictions=None), ValueError),
    "must be scalar": ("train", _spec(loss=lambda loss: tf.zeros([2])), ValueError),
    "either eval_metric_ops or eval_metrics": ("evaluate", _spec(), ValueError),
    "cannot contain both": (
        "evaluate",
        _spec(eval_metric_ops=_metrics, eval_metrics=lambda loss: (_metrics, [loss])),
        ValueError,
    ),
    "`host_call` must be a tuple": ("train", _spec(host_call=[]), TypeError),
    "`host_call` must have two elements": ("train", _spec(host_call=(1,)), ValueError),
    "first element in `eval_metrics` must be callable": ("evaluate", _spec(eval_metrics=(1, [])), TypeError),
    "second element in `eval_metrics` must be a list or dict": (
        "evaluate",
        _spec(eval_metrics=lambda loss: (_metrics, loss)),
        TypeError,
    ),
    "`host_call` return value must be Operation or Tensor": (
        "train",
        _spec(host_call=lambda loss: (lambda: None, [])),
        TypeError,
    ),
    "must return IPUEstimatorSpec or EstimatorSpec": ("train", lambda features, labels: None, ValueError),
    "model_fn does not take labels": ("train", lambda features: None, ValueError),
    "All hooks must be SessionRunHook": ("train", _spec(training_hooks=[1]), TypeError),
}


@pytest.mark.parametrize("text", WRONG_MODELS)
def test_wrong_models(text: str) -> None:
    doing, model, error = WRONG_MODELS[text]
    mine = programs.estimator(1, model)
    with pytest.raises(error, match=text):
        if doing == "predict":
            next(mine.predict(programs.input_fn))
        else:
            getattr(mine, doing)(programs.input_fn, steps=1)


def test_a_host_call_needs_loops_of_one_iteration() -> None:
    model = _spec(host_call=lambda loss: (lambda: tf.no_op(), []))
    with pytest.raises(ValueError, match="host_call is not allowed for iterations_per_loop > 1"):
        programs.estimator(2, model).train(programs.input_fn, steps=2)


def _dataset(*columns: int) -> Callable[[], tf.data.Dataset]:
    return lambda: tf.data.Dataset.from_tensors(tuple(np.zeros([1, size], np.float32) for size in columns))


WRONG_CALLS: dict[str, Callable[[Any], Any]] = {
    r"steps \(3\) must be a multiple of iterations_per_loop \(2\)": lambda mine: mine.train(programs.input_fn, steps=3),
    "One of `num_steps` or `final_step` must be specified": lambda mine: mine.train(programs.input_fn),
    "Can not provide both steps and max_steps": lambda mine: mine.train(programs.input_fn, steps=2, max_steps=2),
    "Must specify steps > 0": lambda mine: mine.evaluate(programs.input_fn, steps=0),
    "input_fn must return Dataset": lambda mine: mine.train(lambda: (1, 2), steps=2),
    r"should return \(features, labels\) as a len 2 tuple": lambda mine: mine.train(_dataset(1, 1, 1), steps=2),
    r"\(features, labels\) as a len 2": lambda mine: mine.evaluate(_dataset(3), steps=2),
    "Could not find a checkpoint": lambda mine: mine.get_variable_names(),
    "Expected to run at least one output": lambda mine: next(mine.predict(programs.input_fn, predict_keys=["z"])),
    "There should be a CheckpointSaverHook": lambda mine: ipu.ipu_estimator.IPUEstimator(
        programs.model_fn, config=mine.config.replace(save_checkpoints_secs=None), params={"optimizer": "sgd"}
    ).train(programs.input_fn, steps=2, saving_listeners=[tf1.train.CheckpointSaverListener()]),
}


@pytest.mark.parametrize("text", WRONG_CALLS)
def test_wrong_calls(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        WRONG_CALLS[text](programs.estimator(2))


WRONG_ESTIMATORS: dict[str, Callable[[], Any]] = {
    "`config` must be provided with type `ipu_run_config.RunConfig`": lambda: ipu.ipu_estimator.IPUEstimator(
        programs.model_fn,
        config=tf_estimator.RunConfig(),  # type: ignore[arg-type]
    ),
    "`params` is expected to be of type `dict`": lambda: programs.estimator(params=[1]),
    "are reserved keys but existed in params": lambda: programs.estimator(params={"input_fn": 1}),
    "batch_size cannot be passed in params": lambda: programs.estimator(params={"batch_size": 1}, train_batch_size=1),
    r"eval_batch_size \(got 0\) must be positive": lambda: programs.estimator(eval_batch_size=0),
    "must include features argument": lambda: programs.estimator(model=lambda mode: None),
    "does not include params argument": lambda: programs.estimator(model=lambda features: None, params={"a": 1}),
    "has following not expected args": lambda: programs.estimator(model=lambda features, other: None),
    "warm_start_from must be a string": lambda: programs.estimator(warm_start_from=3),
    "`model_dir` are set both": lambda: ipu.ipu_estimator.IPUEstimator(
        lambda features: None, "/one", config=programs.config().replace(model_dir="/other")
    ),
}


@pytest.mark.parametrize("text", WRONG_ESTIMATORS)
def test_wrong_estimators(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        WRONG_ESTIMATORS[text]()


class _Workers:
    num_replicas_in_sync = 2


def test_workers_in_other_processes_are_refused() -> None:
    settings = programs.config(2).replace(train_distribute=_Workers())
    with pytest.raises(NotImplementedError, match=r"iterations_per_loop > 1 \(got 2\) not supported with distribution"):
        ipu.ipu_estimator.IPUEstimator(programs.model_fn, config=settings)
    settings = programs.config(1).replace(train_distribute=_Workers())
    with pytest.raises(ValueError, match=r"must be divisible by num_workers \* num_replicas \(2 \* 1\)"):
        ipu.ipu_estimator.IPUEstimator(programs.model_fn, config=settings, train_batch_size=3)
    with pytest.raises(EmulationError, match="2 workers with _Workers"):
        ipu.ipu_estimator.IPUEstimator(programs.model_fn, config=settings).train(programs.input_fn, steps=1)


def test_a_device_of_another_size_is_refused() -> None:
    options = ipu.config.IPUConfig()
    options.select_ipus = 0
    settings = programs.config(num_shards=2, ipu_options=options)
    with pytest.raises(ValueError, match=r"2 devices \(1 num_replicas times 2 num_shards\), but .* with 1 devices"):
        ipu.ipu_estimator.IPUEstimator(programs.model_fn, config=settings, params={}).train(programs.input_fn, steps=1)


def test_replicas_that_never_meet_are_refused() -> None:
    options = ipu.config.IPUConfig()
    options.auto_select_ipus = 2
    settings = programs.config(num_replicas=2, ipu_options=options)
    mine = ipu.ipu_estimator.IPUEstimator(programs.model_fn, config=settings, params={"optimizer": "sgd"})
    with pytest.raises(ValueError, match="This is not a valid replicated training graph"):
        mine.train(programs.input_fn, steps=1)


def _options(**attributes: Any) -> Any:
    options = ipu.config.IPUConfig()
    for name, value in attributes.items():
        setattr(options, name, value)
    return options


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"num_replicas": 3}, ValueError, "requires more than one device, but `ipu_options` is None"),
        ({"ipu_options": 1}, TypeError, "ipu_options must be an IPUConfig instance."),
        ({"ipu_options": _options(auto_select_ipus=3)}, ValueError, r"with 1 devices \(1 replicas times 1 shards\)"),
        ({"ipu_options": _options(auto_select_ipus=1), "ordinal": 1}, ValueError, r"Only 1 device\(s\) available"),
        ({"iterations_per_loop": 0}, ValueError, "iterations_per_loop must be at least 1"),
    ],
)
def test_wrong_run_configurations(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ipu.ipu_run_config.IPURunConfig(**arguments)


def test_the_run_configuration() -> None:
    settings = ipu.ipu_run_config.RunConfig(save_checkpoints_steps=5).replace(model_dir="there")
    assert (settings.model_dir, settings.save_checkpoints_secs) == ("there", None)
    assert settings.ipu_run_config == ipu.ipu_run_config.IPURunConfig()
    assert (settings.is_chief, settings.master, settings.task_type, settings.task_id) == (True, "", "worker", 0)
    with pytest.raises(EmulationError, match="asks for a session in another process"):
        ipu.ipu_run_config.RunConfig(master="grpc://there")
    with pytest.raises(ValueError, match="cannot be both set"):
        ipu.ipu_run_config.RunConfig(save_checkpoints_steps=5, save_checkpoints_secs=5)


def test_checkpoints_by_steps_and_an_older_one_evaluated(tmp_path: Path) -> None:
    settings = programs.config(2).replace(model_dir=str(tmp_path), save_checkpoints_steps=2, save_checkpoints_secs=None)
    mine = ipu.ipu_estimator.IPUEstimator(programs.model_fn, config=settings, params={"optimizer": "sgd"})
    mine.train(programs.input_fn, steps=6)
    steps = sorted(int(path.name.split("-")[1].split(".")[0]) for path in tmp_path.glob("model.ckpt-*.index"))
    assert steps == [0, 2, 4, 6]
    older = mine.evaluate(programs.once, steps=8, checkpoint_path=str(tmp_path / "model.ckpt-4"))
    again = programs.estimator(2)
    again.train(programs.input_fn, steps=4)
    expected = again.evaluate(programs.once, steps=8)
    assert {name: older[name] for name in expected} == {name: pytest.approx(expected[name]) for name in expected}
    assert older["global_step"] == 4
