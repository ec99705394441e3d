"""The stand-in for `tf.estimator`: plain estimators on the host, input functions, names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu_tf import tf_estimator
from ipu_tf.emulation import EmulationError
from tests.helpers import estimator_programs as programs

tf1 = tf.compat.v1
SETTINGS = tf_estimator.RunConfig(save_summary_steps=1, log_step_count_steps=None)


def on_host(features: Any, labels: Any, mode: str) -> Any:
    """The regression with an optimizer that advances the global step, as plain estimators want it."""
    if mode != tf_estimator.ModeKeys.TRAIN:
        return programs.model_fn(features, labels, mode, {})
    loss = programs.squared_error(labels, features)
    step = programs.OPTIMIZERS["sgd"]().minimize(loss, global_step=tf1.train.get_global_step())
    return tf_estimator.EstimatorSpec(mode, loss=loss, train_op=step)


def test_a_plain_estimator() -> None:
    mine = tf_estimator.Estimator(on_host, config=SETTINGS)
    mine.train(programs.input_fn, steps=3)
    mine.train(programs.input_fn, max_steps=5)
    assert mine.get_variable_value("global_step") == 5
    mine.train(programs.once)
    assert mine.get_variable_value("global_step") == 13
    results = mine.evaluate(programs.once)
    x, y = programs.samples()
    expected = x @ mine.get_variable_value("linear/w") + mine.get_variable_value("linear/b")
    assert results["loss"] == pytest.approx(np.square(expected - y).mean(), rel=1e-4)
    assert results["global_step"] == 13
    assert mine.evaluate(programs.input_fn, steps=2)["loss"] != results["loss"]
    found = list(mine.predict(programs.once, predict_keys="y"))
    np.testing.assert_allclose([item["y"] for item in found], expected, rtol=1e-4, atol=1e-5)
    losses, _ = programs.plain_training("sgd", 3)
    np.testing.assert_allclose(programs.logged_losses(mine.model_dir)[:3], losses, rtol=1e-5)


def test_a_loss_that_is_no_number_stops_the_training() -> None:
    def model(features: Any, labels: Any, mode: str) -> Any:
        loss = tf.reduce_sum(labels) * float("nan")
        return tf_estimator.EstimatorSpec(mode, loss=loss, train_op=loss)

    with pytest.raises(tf_estimator.NanLossDuringTrainingError):
        tf_estimator.Estimator(model, config=SETTINGS).train(programs.input_fn, steps=1)


def test_operations_on_an_ipu_have_to_be_compiled() -> None:
    def model(features: Any, labels: Any, mode: str) -> Any:
        with tf.device("/device:IPU:0"):
            loss = tf.reduce_sum(labels)
        return tf_estimator.EstimatorSpec(mode, loss=loss, train_op=loss)

    with pytest.raises(EmulationError, match="on /device:IPU:0 without compiling it.*Use ipu.ipu_estimator"):
        tf_estimator.Estimator(model, config=SETTINGS).train(programs.input_fn, steps=1)


def test_what_is_not_provided_says_so() -> None:
    mine = tf_estimator.Estimator(on_host)
    with pytest.raises(EmulationError, match="Estimator.export_saved_model is not provided"):
        mine.export_saved_model("folder")
    with pytest.raises(AttributeError, match="tf.estimator.DNNClassifier is not there"):
        _ = tf_estimator.DNNClassifier
    assert tf_estimator.LoggingTensorHook is tf1.train.LoggingTensorHook


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("batch", [4, 5])
def test_numpy_input(names: bool, batch: int) -> None:
    x, y = programs.samples(8)
    given: Any = {"x": x} if names else x
    dataset = tf_estimator.inputs.numpy_input_fn(given, y, batch_size=batch, num_epochs=2, shuffle=False)()
    found = [(item[0]["x"] if names else item[0], item[1]) for item in dataset.as_numpy_iterator()]
    np.testing.assert_array_equal(np.concatenate([features for features, _ in found]), np.concatenate([x, x]))
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in found]), np.concatenate([y, y]))
    assert dataset.element_spec[1].shape.is_fully_defined() == (batch == 4)


@pytest.mark.parametrize(
    ("samples", "epochs", "full"), [(6, None, True), (6, 2, True), (6, 1, False), (6, 3, False), (8, 3, True)]
)
def test_numpy_input_of_full_batches_has_their_size(samples: int, epochs: int | None, full: bool) -> None:
    """A batch may have the last examples of an epoch and the first of the next."""
    x = np.arange(2.0 * samples).reshape(samples, 2)
    dataset = tf_estimator.inputs.numpy_input_fn(x, batch_size=4, num_epochs=epochs, shuffle=False)()
    batches = list(dataset.take(6).as_numpy_iterator())
    assert dataset.element_spec.shape.is_fully_defined() == full == (len(batches[-1]) == 4)
    wanted = np.concatenate([x] * (epochs or 6))
    found = np.concatenate(batches)
    np.testing.assert_array_equal(found, wanted[: len(found)])
    assert epochs is None or len(found) == len(wanted)


def test_wrong_numpy_input() -> None:
    with pytest.raises(ValueError, match="shuffle must be provided and explicitly set as boolean"):
        tf_estimator.inputs.numpy_input_fn(np.zeros(2), shuffle=None)
    with pytest.raises(ValueError, match="Length of tensors in x and y is mismatched"):
        tf_estimator.inputs.numpy_input_fn(np.zeros(2), np.zeros(3), shuffle=True)


class Frame(dict[str, np.ndarray]):
    """Attributes of a frame that `pandas_input_fn` reads."""

    columns = ("a", "b")


def test_frame_input() -> None:
    frame = Frame(a=np.arange(3), b=np.ones(3))
    function = tf_estimator.inputs.pandas_input_fn(frame, Frame(a=np.zeros(3)), batch_size=3, shuffle=False)
    [(features, labels)] = function().as_numpy_iterator()
    np.testing.assert_array_equal(features["a"], [0, 1, 2])
    assert sorted(features) == ["a", "b"] and list(labels) == ["a"]


def test_train_and_evaluate() -> None:
    settings = tf_estimator.RunConfig(save_checkpoints_steps=2, save_summary_steps=1, log_step_count_steps=None)
    mine = tf_estimator.Estimator(on_host, config=settings)
    steps: list[int] = []

    def evaluated() -> tf.data.Dataset:
        steps.append(int(mine.get_variable_value("global_step")))
        return programs.once()

    training = tf_estimator.TrainSpec(programs.input_fn, max_steps=5)
    evaluation = tf_estimator.EvalSpec(evaluated, steps=None, throttle_secs=0)
    results, exported = tf_estimator.train_and_evaluate(mine, training, evaluation)
    assert steps == [2, 4, 5]  # not what it begins with, and the last once
    assert results == mine.evaluate(programs.once)
    assert exported == []
    steps.clear()
    again = tf_estimator.EvalSpec(evaluated, throttle_secs=1000)
    tf_estimator.train_and_evaluate(mine, tf_estimator.TrainSpec(programs.input_fn, max_steps=9), again)
    assert steps == [7, 9]  # the first that was trained, and the last


def test_one_of_steps_and_seconds_between_checkpoints_replaces_the_other() -> None:
    steps = tf_estimator.RunConfig().replace(save_checkpoints_steps=10)
    assert (steps.save_checkpoints_steps, steps.save_checkpoints_secs) == (10, None)
    seconds = steps.replace(save_checkpoints_secs=60)
    assert (seconds.save_checkpoints_steps, seconds.save_checkpoints_secs) == (None, 60)
    with pytest.raises(ValueError, match="cannot be both set"):
        steps.replace(save_checkpoints_steps=5, save_checkpoints_secs=60)


def test_several_workers_are_refused() -> None:
    cores = tf.distribute.OneDeviceStrategy("/device:CPU:0")
    assert tf_estimator.Estimator(on_host, config=SETTINGS.replace(train_distribute=cores)).train(programs.once)

    class Two:
        num_replicas_in_sync = 2

    mine = tf_estimator.Estimator(on_host, config=SETTINGS.replace(train_distribute=Two()))
    with pytest.raises(EmulationError, match="asks for 2 workers with Two"):
        mine.train(programs.once)


@pytest.mark.parametrize("own", ["scaffold", "scaffold with a saver", "saver"])
def test_checkpoints_that_are_kept_beside_what_the_model_has(own: str, tmp_path: Path) -> None:
    def model(features: Any, labels: Any, mode: str) -> Any:
        spec = on_host(features, labels, mode)
        saver = tf1.train.Saver(max_to_keep=2) if own != "scaffold" else None
        if own == "saver":
            tf1.add_to_collection(tf1.GraphKeys.SAVERS, saver)
            return spec
        scaffold = tf1.train.Scaffold(init_fn=lambda scaffold, session: None, saver=saver)
        return tf_estimator.EstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op, scaffold=scaffold)

    config = SETTINGS.replace(save_checkpoints_steps=1, keep_checkpoint_max=1, model_dir=str(tmp_path))
    tf_estimator.Estimator(model, config=config).train(programs.input_fn, steps=4)
    assert len(list(tmp_path.glob("model.ckpt-*.index"))) == (1 if own == "scaffold" else 2)


def test_functions_may_change_the_parameters_they_are_given() -> None:
    def model(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
        params["sizes"].append(params.pop("more"))
        return on_host(features, labels, mode)

    mine = tf_estimator.Estimator(model, config=SETTINGS, params={"more": 1, "sizes": [2]})
    mine.train(programs.input_fn, steps=1)
    mine.evaluate(programs.once)
    assert mine.params == {"more": 1, "sizes": [2]}


@pytest.mark.parametrize("make", [tf_estimator.TrainSpec, tf_estimator.EvalSpec])
def test_specs_check_their_steps(make: Any) -> None:
    with pytest.raises(ValueError, match="Must specify .*steps > 0, given: 0"):
        make(programs.input_fn, 0)


def test_exporters_are_refused() -> None:
    with pytest.raises(EmulationError, match="exporters went with TensorFlow's estimators"):
        tf_estimator.EvalSpec(programs.input_fn, exporters=["best"])
