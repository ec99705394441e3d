"""Networks of keras.applications train on the device as on stock Keras: two steps on small images, random weights.

These networks magnify round-off: in the gradient of one step stock Keras differs from itself, compiled with XLA, by
half a percent, and by 30 % after a step of an ordinary size. So steps are tiny, and what is compared are the momenta,
which are sums of both steps' gradients, variable by variable.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import applications

from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import integers, ipu_scope, numbers
from tests.helpers.some_ipus import ipus

STEPS, BATCH, CLASSES = 2, 16, 10
X = numbers(STEPS * BATCH, 32, 32, 3)
Y = integers(CLASSES, STEPS * BATCH)


@dataclasses.dataclass(frozen=True)
class Trained:
    """Results of two steps: the mean loss, the momenta, and the moving statistics of normalizations."""

    loss: float
    momenta: dict[str, np.ndarray]
    statistics: dict[str, np.ndarray]


def trained(make: Callable[..., keras.Model], scope: contextlib.AbstractContextManager[Any]) -> Trained:
    """Two steps in one execution."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    with scope:
        model = make(weights=None, input_shape=(32, 32, 3), classes=CLASSES)
        optimizer = keras.optimizers.SGD(1e-7, momentum=0.9)
        told = {"steps_per_execution": STEPS, "jit_compile": False}
        model.compile(optimizer, "sparse_categorical_crossentropy", **told)
    loss = model.fit(X, Y, BATCH, verbose=0, shuffle=False).history["loss"][0]
    momenta = {each.path: each.numpy() for each in model.optimizer.variables if "momentum" in each.path}
    return Trained(loss, momenta, {each.path: each.numpy() for each in model.non_trainable_weights})


def norm(arrays: Any) -> float:
    return float(np.sqrt(sum(np.sum(np.square(array, dtype=np.float64)) for array in arrays)))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(applications.MobileNetV2, id="MobileNetV2"),
        pytest.param(applications.ResNet50, id="ResNet50", marks=pytest.mark.slow),
        pytest.param(applications.EfficientNetB0, id="EfficientNetB0", marks=pytest.mark.slow),
    ],
)
def test_two_steps(make: Callable[..., keras.Model]) -> None:
    with ipus(1), device_work() as work:
        found = trained(make, ipu_scope())
    assert (work.counts.executions, work.counts.steps) == (1, STEPS)
    wanted = trained(make, contextlib.nullcontext())
    np.testing.assert_allclose(found.loss, wanted.loss, rtol=1e-4)
    assert len(wanted.momenta) == len(found.momenta) > 100
    gaps = {path: found.momenta[path] - momentum for path, momentum in wanted.momenta.items()}
    whole = norm(wanted.momenta.values())
    assert norm(gaps.values()) < 0.02 * whole
    for path, gap in gaps.items():
        assert norm([gap]) < 0.1 * norm([wanted.momenta[path]]) + 1e-6 * whole, path
    for path, statistic in wanted.statistics.items():
        np.testing.assert_allclose(found.statistics[path], statistic, rtol=1e-4, atol=1e-5, err_msg=path)
