"""A dynamic loss scale falls where gradients overflow, as in stock Keras, or a line says why it cannot."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import ipu_tf as ipu

X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def _trained(package: Any, name: str, dtype: str = "mixed_float16") -> tuple[list[float], float]:
    """Returns the losses and the last scale of a model whose first gradients overflow in float16."""
    package.utils.set_random_seed(3)
    layers = [package.layers.Dense(6, "tanh", dtype=dtype), package.layers.Dense(1, dtype=dtype)]
    model = package.Sequential([package.Input((4,)), *layers], name=name)
    optimizer = package.mixed_precision.LossScaleOptimizer(package.optimizers.Adam(0.01))
    model.compile(optimizer, "mse")
    losses = model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"]
    scale = optimizer.loss_scale if hasattr(optimizer, "loss_scale") else optimizer.dynamic_scale
    return losses, float(scale)


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
@pytest.mark.parametrize("shown", [False, True], ids=["saturating", "nanoo"])
def test_overflow_is_seen_or_a_line_says_that_it_is_not(
    package: str, shown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    keras = pytest.importorskip(package, reason="Keras 2 is the package tf_keras, which only its programs need")
    name = f"scaled_{package}_{shown}"
    wanted, fallen = _trained(keras, "stock")
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.floating_point_behaviour.nanoo = shown
    config.configure_ipu_system()
    try:
        with ipu.ipu_strategy.IPUStrategy().scope(), caplog.at_level(logging.WARNING, "ipu_tf"):
            found, scale = _trained(keras, name)
            _trained(keras, f"{name}_in_float32", "float32")
    finally:
        ipu.config.reset_ipu_configuration()
    said = [record.getMessage() for record in caplog.records if name in record.getMessage()]
    # One line, and none for the model in float32.
    assert ["nanoo = True" in each for each in said] == ([] if shown else [True])
    if shown:
        assert scale == fallen < 2**15
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
