"""`IPUPipelineEstimator` against gradient accumulation by hand, and its own errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from tests.helpers import estimator_programs as programs
from tests.helpers.device_counts import device_work

tf1 = tf.compat.v1
Spec = ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec
COUNT, RATE = 4, 0.05


@pytest.fixture(autouse=True)
def two_ipus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine of four IPUs, without a configuration before and after."""
    monkeypatch.setenv("TF_IPU_COUNT", "4")
    yield
    ipu.config.reset_ipu_configuration()


def variables() -> tuple[Any, Any]:
    """The weights of the two stages."""
    with tf1.variable_scope("stages", use_resource=True, reuse=tf1.AUTO_REUSE):
        return (
            tf1.get_variable("first", initializer=np.ones([3, 2], np.float32)),
            tf1.get_variable("second", initializer=np.array([[1.0], [0.5]], np.float32)),
        )


def first(features: Any, labels: Any = None) -> Any:
    """The first stage."""
    hidden = features @ variables()[0]
    return (hidden,) if labels is None else (hidden, labels)


def loss_of(hidden: Any, labels: Any) -> Any:
    """The second stage in training."""
    return tf.reduce_mean(tf.square(hidden @ variables()[1] - labels))


def model_fn(mode: str, params: dict[str, Any]) -> Any:
    """A linear model of two stages."""

    def outputs(hidden: Any) -> Any:
        return hidden @ variables()[1]

    def evaluated(hidden: Any, labels: Any) -> Any:
        return outputs(hidden), labels

    def metrics(found: Any, labels: Any) -> Any:
        return {"loss": tf.square(found - labels), "found": tf1.metrics.mean(found)}

    def optimizer(loss: Any) -> Any:
        return ipu.ops.pipelining_ops.OptimizerFunctionOutput(tf1.train.GradientDescentOptimizer(RATE), loss)

    last = {"train": loss_of, "eval": evaluated, "infer": outputs}[mode]
    return Spec(
        mode,
        [first, last],
        gradient_accumulation_count=COUNT,
        eval_metrics_fn=metrics,
        optimizer_function=optimizer,
        reduction_method=params.get("reduction", "SUM"),
    )


def estimator(loop: int, model: Callable[..., Any] = model_fn, params: Any = None) -> Any:
    """The estimator on two IPUs."""
    options = ipu.config.IPUConfig()
    options.auto_select_ipus = 2
    settings = programs.config(loop, num_shards=2, ipu_options=options)
    return ipu.ipu_pipeline_estimator.IPUPipelineEstimator(model, config=settings, params=params or {})


def by_hand(updates: int, scale: float) -> tuple[list[float], list[np.ndarray]]:
    """The mean losses and final weights of updates that each take the gradients of `COUNT` batches."""
    with tf.Graph().as_default(), tf1.Session() as session:
        dataset = programs.input_fn().batch(COUNT, drop_remainder=True)
        features, labels = tf1.data.make_one_shot_iterator(dataset).get_next()
        losses = [loss_of(features[i] @ variables()[0], labels[i]) for i in range(COUNT)]
        total = tf.add_n(losses)
        step = tf1.train.GradientDescentOptimizer(RATE * scale).minimize(total)
        session.run(tf1.global_variables_initializer())
        reported = [float(session.run([total, step])[0]) / COUNT for _ in range(updates)]
        return reported, session.run(list(variables()))


@pytest.mark.parametrize(("reduction", "scale", "loop"), [("SUM", 1.0, 4), ("MEAN", 1 / COUNT, 8)])
def test_training_equals_gradient_accumulation_by_hand(reduction: str, scale: float, loop: int) -> None:
    mine = estimator(loop, params={"reduction": reduction})
    with device_work() as work:
        mine.train(programs.input_fn, steps=16)
    losses, (one, two) = by_hand(4, scale)
    assert work.counts.executions == 16 // loop
    assert mine.get_variable_value("global_step") == 16
    np.testing.assert_allclose(mine.get_variable_value("stages/first"), one, rtol=1e-5)
    np.testing.assert_allclose(mine.get_variable_value("stages/second"), two, rtol=1e-5)
    per_run = np.reshape(losses, [-1, loop // COUNT]).mean(1)
    np.testing.assert_allclose(programs.logged_losses(mine.model_dir), per_run, rtol=1e-5)


def test_evaluation_and_prediction_of_what_was_trained() -> None:
    mine = estimator(4)
    mine.train(programs.input_fn, steps=4)
    x, y = programs.samples()
    expected = x @ mine.get_variable_value("stages/first") @ mine.get_variable_value("stages/second")
    with device_work() as work:
        results = mine.evaluate(programs.once, steps=8)
        found = list(mine.predict(lambda: programs.once().map(lambda x, y: x)))
    # Two runs each, and the one that finds the data at its end.
    assert work.counts.executions >= 4
    assert results["loss"] == pytest.approx(np.square(expected - y).mean(), rel=1e-4)
    assert results["found"] == pytest.approx(expected.mean(), rel=1e-4)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def _keras_model_fn(mode: str, params: dict[str, Any]) -> Any:
    """`model_fn` with layers of Keras's that each stage makes anew."""

    def stage(features: Any, labels: Any) -> Any:
        return tf.keras.layers.Dense(2)(features), labels

    def last(hidden: Any, labels: Any) -> Any:
        outputs = tf.keras.layers.Dense(1)(hidden)
        return tf.reduce_mean(tf.square(outputs - labels)) if mode == "train" else (outputs, labels)

    spec = model_fn(mode, params)
    return spec._replace(computational_stages=[stage, last])


def test_layers_of_keras_have_the_same_variables_in_training_and_evaluation() -> None:
    mine = estimator(8, _keras_model_fn)
    mine.train(programs.input_fn, steps=8)
    names = mine.get_variable_names()
    assert {"dense/bias", "dense/kernel"} < set(names)
    assert len(names) == 5
    assert np.isfinite(mine.evaluate(programs.input_fn, steps=8)["loss"])


def _model(**changes: Any) -> Callable[..., Any]:
    def model(mode: str) -> Any:
        arguments: dict[str, Any] = {
            "computational_stages": [first, loss_of],
            "gradient_accumulation_count": 4,
            "optimizer_function": lambda loss: None,
            "eval_metrics_fn": lambda loss: {"loss": loss},
        }
        return Spec(mode, **{**arguments, **changes})

    return model


WRONG: dict[str, tuple[str, Callable[..., Any], type[Exception]]] = {
    "must not have `features` or `labels` arguments": ("train", lambda features: None, ValueError),
    "must return `IPUPipelineEstimatorSpec`": ("train", lambda mode: None, TypeError),
    "must contain `optimizer_function` when training": ("train", _model(optimizer_function=None), ValueError),
    "must contain `eval_metrics_fn` when evaluating": ("evaluate", _model(eval_metrics_fn=None), ValueError),
    "must contain `gradient_accumulation_count`": ("train", _model(gradient_accumulation_count=None), ValueError),
    "The `accumulate_outfeed` pipeline keyword argument": ("train", _model(accumulate_outfeed=True), ValueError),
    r"\(got 4\) cannot be less than `gradient_accumulation_count` \(got 8\)": (
        "train",
        _model(gradient_accumulation_count=8),
        ValueError,
    ),
    r"\(got 4\) must be divisible by `gradient_accumulation_count` \(got 3\)": (
        "train",
        _model(gradient_accumulation_count=3),
        ValueError,
    ),
    "requires 3 devices, but `IPURunConfig.num_shards` was set to 2": (
        "train",
        _model(device_mapping=[0, 1, 2]),
        ValueError,
    ),
    "The `eval_metrics_fn` must return a dict": ("evaluate", _model(eval_metrics_fn=lambda loss: loss), TypeError),
    "must contain 'loss'": ("evaluate", _model(eval_metrics_fn=lambda loss: {}), KeyError),
    "exactly one prediction tensor, but got 2": (
        "predict",
        _model(computational_stages=[first, lambda hidden, labels: (hidden, labels)]),
        ValueError,
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_models(text: str) -> None:
    doing, model, error = WRONG[text]
    mine = estimator(4, model)
    with pytest.raises(error, match=text):
        if doing == "predict":
            next(mine.predict(programs.input_fn))
        else:
            getattr(mine, doing)(programs.input_fn, steps=4)
