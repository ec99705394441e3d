"""Tools around Keras that the tests' environment lacks: keras_tuner, wandb and MLflow, as with stock Keras.

pip install keras-tuner wandb mlflow-skinny sqlalchemy alembic pandas
python -m pytest -m slow tests/keras_ipu/test_keras_tools.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # the tools' own, of what they import
]
X = np.random.default_rng(0).random((96, 8)).astype(np.float32)
Y = X.sum(axis=1, keepdims=True)


def compiled(units: int = 16) -> keras.Model:
    """A model with the same weights each time."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((8,)), layers.Dense(units, "relu"), layers.Dense(1)])
    model.compile(keras.optimizers.Adam(name="adam"), "mse", metrics=["mae"])
    return model


def stock_and_ours(program: Callable[[Path], Any], folder: Path) -> tuple[Any, Any]:
    """What a program gives without the scope of a strategy and in it, where it runs on the device."""
    with device_work() as none:
        stock = program(folder / "stock")
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        ours = program(folder / "ours")
    assert not none.counts.steps
    assert work.counts.steps > 0
    return stock, ours


def searched(folder: Path) -> Any:
    """Parameters and scores of a search's trials by their names, and the best model's predictions."""
    tuner = pytest.importorskip("keras_tuner", reason="keras_tuner is not installed: pip install keras-tuner")

    def build(parameters: Any) -> keras.Model:
        model = compiled(parameters.Int("units", 4, 32, step=4))
        model.optimizer.learning_rate = parameters.Float("rate", 1e-3, 1e-1, sampling="log")
        return model

    search = tuner.RandomSearch(build, "val_loss", max_trials=3, seed=3, directory=folder)
    search.search(X, Y, epochs=2, batch_size=16, validation_split=0.2, shuffle=False, verbose=0)
    trials = {name: (trial.hyperparameters.values, trial.score) for name, trial in search.oracle.trials.items()}
    return trials, search.get_best_models()[0].predict(X, verbose=0)


def test_keras_tuner_finds_the_trials_and_the_best_model_of_stock_keras(tmp_path: Path) -> None:
    (trials, predictions), (our_trials, our_predictions) = stock_and_ours(searched, tmp_path)
    assert len(trials) == 3
    for name, (parameters, score) in trials.items():
        assert our_trials[name][0] == parameters
        assert our_trials[name][1] == pytest.approx(score, rel=1e-5)
    np.testing.assert_allclose(our_predictions, predictions, rtol=1e-5, atol=1e-6)


def logged_by_wandb(folder: Path) -> list[dict[str, Any]]:
    """What wandb's callbacks log, offline, and which files of models they write."""
    wandb = pytest.importorskip("wandb", reason="wandb is not installed: pip install wandb")
    from wandb.integration.keras import WandbMetricsLogger, WandbModelCheckpoint

    folder.mkdir()
    calls: list[dict[str, Any]] = []
    run = wandb.init(project="p", mode="offline", dir=folder, settings=wandb.Settings(silent=True))

    def log(data: dict[str, Any], *args: Any, **more: Any) -> None:
        calls.append(data)
        run.log(data, *args, **more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(wandb, "log", log)
        files = WandbModelCheckpoint(str(folder / "{epoch}.keras"))
        callbacks = [WandbMetricsLogger("batch"), WandbMetricsLogger(), files]
        compiled().fit(X, Y, 16, 2, verbose=0, validation_split=0.2, callbacks=callbacks)
    wandb.teardown()  # ends its process, and the environment no longer names it
    return [*calls, {path.name: 1.0 for path in folder.glob("*.keras")}]


def test_wandb_logs_what_it_logs_of_stock_keras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path))
    stock, ours = stock_and_ours(logged_by_wandb, tmp_path)
    assert [list(call) for call in ours] == [list(call) for call in stock]
    assert len(stock[-1]) == 2
    for call, wanted in zip(ours, stock, strict=True):
        for name, value in wanted.items():
            assert float(call[name]) == pytest.approx(float(value), rel=1e-5), name


def metrics_of(run: str) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """All values of a run's metrics, and its parameters."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    data = client.get_run(run).data
    return {name: [each.value for each in client.get_metric_history(run, name)] for name in data.metrics}, data.params


def recorded(folder: Path, automatic: bool) -> Any:
    """Metrics and parameters that MLflow records of `fit` and `evaluate`."""
    reason = "MLflow is not installed: pip install mlflow-skinny sqlalchemy alembic pandas"
    mlflow = pytest.importorskip("mlflow", reason=reason)
    pytest.importorskip("mlflow.tensorflow", reason=reason)

    folder.mkdir()
    mlflow.set_tracking_uri(f"sqlite:///{folder}/runs.db")
    mlflow.tensorflow.autolog(log_models=False, log_datasets=False, disable=not automatic)
    try:
        with mlflow.start_run() as run:
            callbacks = [] if automatic else [mlflow.tensorflow.MlflowCallback(run)]
            model = compiled()
            model.fit(X, Y, 16, 2, verbose=0, validation_split=0.2, callbacks=callbacks)
            model.evaluate(X, Y, verbose=0, callbacks=callbacks)
        return metrics_of(run.info.run_id)
    finally:
        mlflow.tensorflow.autolog(disable=True)


@pytest.mark.parametrize("automatic", [False, True], ids=["callback", "autolog"])
def test_mlflow_records_what_it_records_of_stock_keras(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, automatic: bool
) -> None:
    monkeypatch.chdir(tmp_path)  # MLflow makes its folder for files there
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")  # MLflow sets it
    stock, ours = stock_and_ours(lambda folder: recorded(folder, automatic), tmp_path)
    assert ours[1] == stock[1]
    assert ours[0].keys() == stock[0].keys()
    assert len(stock[0]["loss"]) >= 2
    for name, values in stock[0].items():
        np.testing.assert_allclose(ours[0][name], values, rtol=1e-5, err_msg=name)
