"""A dynamic loss scale falls where gradients overflow, as in stock Keras; elsewhere float16 saturates, as on an IPU."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]

X = np.random.default_rng(0).normal(size=(36, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True)
HALF = 5e-4
"""Half the distance of two float16 numbers, relative to them."""


def _model(package: Any, wrapped: bool = True, steps: int = 1) -> Any:
    """Returns a model in float16; the optimizer's first gradients overflow if the loss is scaled."""
    package.utils.set_random_seed(3)
    layers = [package.layers.Dense(6, "tanh", dtype="mixed_float16"), package.layers.Dense(1, dtype="mixed_float16")]
    model = package.Sequential([package.Input((4,)), *layers])
    optimizer = package.optimizers.Adam(0.01)
    scaling = package.mixed_precision.LossScaleOptimizer
    model.compile(scaling(optimizer) if wrapped else optimizer, "mse", steps_per_execution=steps)
    return model


def _trained(model: Any) -> tuple[list[float], float]:
    """Returns the losses and the last scale."""
    losses = model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"]
    optimizer = model.optimizer
    scale = optimizer.loss_scale if hasattr(optimizer, "loss_scale") else optimizer.dynamic_scale
    return losses, float(scale)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_the_scale_falls_as_in_stock_keras(package: str, steps: int, strategy: Any) -> None:  # noqa: F811
    module = pytest.importorskip(package, reason="Keras 2 is the package tf_keras, which only its programs need")
    wanted, fallen = _trained(_model(module))
    with strategy.scope(), device_work() as work:
        found, scale = _trained(_model(module, steps=steps))
    assert work.counts.steps == 10
    assert scale == fallen < 2**15
    np.testing.assert_allclose(found, wanted, rtol=HALF)


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_wrapped_optimizer_is_found_after_another_one(package: str, strategy: Any) -> None:  # noqa: F811
    module = pytest.importorskip(package, reason="Keras 2 is the package tf_keras, which only its programs need")
    wanted, fallen = _trained(_model(module))
    with strategy.scope():
        model = _model(module, wrapped=False)
        start = model.get_weights()
        model.fit(X, Y, batch_size=8, verbose=0)
        model.set_weights(start)
        model.compile(module.mixed_precision.LossScaleOptimizer(module.optimizers.Adam(0.01)), "mse")
        found, scale = _trained(model)
    assert scale == fallen
    np.testing.assert_allclose(found, wanted, rtol=HALF)


def test_predictions_saturate_as_configured(strategy: Any) -> None:  # noqa: F811
    with strategy.scope():
        model = _model(keras)
        model.fit(X, Y, batch_size=8, verbose=0)
        found = model.predict(np.full((2, 4), 6e4, "float32"), verbose=0)
    assert np.isfinite(found).all()
