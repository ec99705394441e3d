"""Libraries around Keras in a strategy's scope: scikit-learn's wrappers and TensorBoard, as with stock Keras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

X = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
LABELS = (X[:, 0] + X[:, 1] > 0).astype(np.int32)
FIT = {"epochs": 2, "batch_size": 16, "shuffle": False, "verbose": 0}


def classifier(X: Any, y: Any, units: int = 4) -> keras.Model:
    """A model for scikit-learn, which passes the data of a fold."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input(X.shape[1:]),
            layers.Dense(units, "tanh"),
            layers.Dense(y.shape[1], "softmax"),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), "categorical_crossentropy", jit_compile=False)
    return model


def scored() -> list[Any]:
    """Scores of a cross-validation, a search of parameters, and predictions of a pipeline."""
    wrapped = keras.wrappers.SKLearnClassifier(classifier, model_kwargs={"units": 3}, fit_kwargs=FIT)
    folds = cross_val_score(wrapped, X, LABELS, cv=3, error_score="raise")
    grid = {"model_kwargs": [{"units": 2}, {"units": 5}]}
    search = GridSearchCV(wrapped, grid, cv=2, error_score="raise").fit(X, LABELS)
    pipeline = make_pipeline(StandardScaler(), wrapped).fit(X, LABELS)
    return [folds, search.cv_results_["mean_test_score"], pipeline.predict(X)]


def test_scikit_learn_validates_searches_and_pipes_models() -> None:
    wanted = scored()
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        found = scored()
    assert work.counts.steps > 0
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def written(folder: Path) -> dict[str, list[Any]]:
    """Fits a model with everything that TensorBoard's callback writes; returns its events by tag."""
    keras.utils.set_random_seed(1)
    named = [layers.Dense(3, "tanh", name="hidden"), layers.Dense(1, name="last")]
    model = keras.Sequential([keras.Input((4,)), *named], name="model")
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    board = keras.callbacks.TensorBoard(
        folder, histogram_freq=1, update_freq=2, profile_batch=(2, 3), write_graph=False
    )
    model.fit(
        X,
        LABELS,
        16,
        epochs=2,
        shuffle=False,
        verbose=0,
        validation_split=0.2,
        callbacks=[board],
    )
    events: dict[str, list[Any]] = {}
    for file in sorted(folder.rglob("*tfevents*")):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            for value in event.summary.value:
                where = f"{file.parent.name}/{value.tag}"
                events.setdefault(where, []).append((event.step, tf.make_ndarray(value.tensor)))
    return events


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's histograms
def test_tensorboard_gets_losses_histograms_and_a_profile(tmp_path: Path) -> None:
    wanted = written(tmp_path / "stock")
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        found = written(tmp_path / "ours")
    assert work.counts.steps > 0
    assert {*found} == {*wanted}
    assert any("histogram" in tag for tag in found)
    for tag, events in wanted.items():
        assert [step for step, _ in found[tag]] == [step for step, _ in events], tag
        if "steps_per_second" not in tag:
            for (_, ours), (_, theirs) in zip(found[tag], events, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6, err_msg=tag)
    profiles = [[*(tmp_path / side).rglob("*.xplane.pb")] for side in ("stock", "ours")]
    assert [len(each) for each in profiles] == [1, 1]
