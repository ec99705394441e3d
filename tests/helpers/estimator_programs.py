"""Small regression for the tests of estimators: data, `model_fn`, and the same training without an estimator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf import tf_estimator

tf1 = tf.compat.v1
BATCH = 4
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: tf1.train.GradientDescentOptimizer(0.1),
    "adam": lambda: tf1.train.AdamOptimizer(0.05),
}


def samples(count: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Features `[count, 3]` and labels `[count, 1]`."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(count, 3)).astype(np.float32)
    return x, x @ np.array([[1.0], [-2.0], [0.5]], np.float32) + np.float32(0.25)


def input_fn(repeat: bool = True) -> tf.data.Dataset:
    """The samples in full batches, endless unless said otherwise."""
    dataset = tf.data.Dataset.from_tensor_slices(samples()).batch(BATCH, drop_remainder=True)
    return dataset.repeat() if repeat else dataset


def once() -> tf.data.Dataset:
    """The eight batches of the samples, once."""
    return input_fn(repeat=False)


def predicted(features: Any) -> Any:
    """The linear model."""
    with tf1.variable_scope("linear", use_resource=True, reuse=tf1.AUTO_REUSE):
        w = tf1.get_variable("w", [3, 1], initializer=tf1.ones_initializer())
        b = tf1.get_variable("b", [1], initializer=tf1.zeros_initializer())
    return features @ w + b


def squared_error(labels: Any, features: Any) -> Any:
    """The mean squared error of the linear model."""
    return tf.reduce_mean(tf.square(predicted(features) - labels))


def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """The regression with any of the `OPTIMIZERS`, its error's mean as a metric, and predictions by name."""
    outputs = predicted(features)
    if mode == tf_estimator.ModeKeys.PREDICT:
        return tf_estimator.EstimatorSpec(mode, predictions={"y": outputs, "x": features})
    loss = squared_error(labels, features)
    if mode == tf_estimator.ModeKeys.EVAL:
        metrics = {"error": tf1.metrics.mean(tf.abs(outputs - labels))}
        return tf_estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    return tf_estimator.EstimatorSpec(mode, loss=loss, train_op=OPTIMIZERS[params["optimizer"]]().minimize(loss))


def config(loop: int = 1, **options: Any) -> Any:
    """A run configuration for one IPU with so many iterations a loop."""
    run = ipu.ipu_run_config.IPURunConfig(iterations_per_loop=loop, **options)
    return ipu.ipu_run_config.RunConfig(run, save_summary_steps=1, log_step_count_steps=None)


def estimator(loop: int = 1, model: Callable[..., Any] = model_fn, **options: Any) -> Any:
    """An `IPUEstimator` of the regression, or of another model."""
    if model is model_fn:
        options.setdefault("params", {"optimizer": "sgd"})
    return ipu.ipu_estimator.IPUEstimator(model, config=config(loop), **options)


def plain_training(optimizer: str, steps: int, replicas: int = 1) -> tuple[list[float], dict[str, np.ndarray]]:
    """The losses and final variables of a TF1 loop on the host, each step on the batches of all replicas."""
    with tf.Graph().as_default(), tf1.Session() as session:
        dataset = tf.data.Dataset.from_tensor_slices(samples()).batch(BATCH * replicas, drop_remainder=True).repeat()
        features, labels = tf1.data.make_one_shot_iterator(dataset).get_next()
        loss = squared_error(labels, features)
        step = OPTIMIZERS[optimizer]().minimize(loss)
        session.run(tf1.global_variables_initializer())
        losses = [float(session.run([loss, step])[0]) for _ in range(steps)]
        values = {variable.op.name: session.run(variable) for variable in tf1.trainable_variables()}
    return losses, values


def logged_losses(folder: str) -> list[float]:
    """The losses in the one file of summaries in a folder."""
    [file] = tf.io.gfile.glob(f"{folder}/events*")
    events = list(tf1.train.summary_iterator(file))
    return [value.simple_value for event in events for value in event.summary.value if value.tag == "loss"]
