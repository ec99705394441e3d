"""One training step through every layer without weights: values and gradients are those of stock Keras."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from tests.helpers.device_counts import device_work
from tests.helpers.keras_layers_left_out import STATELESS_LAYERS
from tests.helpers.keras_parity import ipu_scope, numbers
from tests.helpers.keras_stateless_rows import STATELESS_INPUTS, STATELESS_ROWS
from tests.helpers.some_ipus import ipus

RTOL = 1e-5
LEARNING_RATES = {"pictures": 1e-5, "waves": 1e-5}
"""Smaller where outputs are large: steps that overshoot would show nothing but how rounding grows."""
Stepped = tuple[dict[str, list[float]], dict[str, np.ndarray]]


def _model(group: str) -> keras.Model:
    """A model with a branch for each layer of a group: a dense layer, the layer, an output."""
    x = STATELESS_INPUTS[group]
    given = keras.Input(x.shape[1:], batch_size=len(x))
    outputs = {}
    for name, row in STATELESS_ROWS.items():
        if row.group == group:
            before = layers.Rescaling(1.0) if group == "pictures" else layers.Dense(x.shape[-1], name=f"{name}_before")
            after = layers.Dense(2, name=f"{name}_after")
            outputs[f"{name}_after"] = after(layers.Flatten()(row.call(row.make(), before(given))))
    return keras.Model(given, outputs)


@functools.cache
def stepped(group: str) -> tuple[Stepped, Stepped]:
    """Two steps on the device and on stock Keras: losses and weights of each branch."""
    x, found = STATELESS_INPUTS[group], list[Stepped]()
    with ipus(1):
        for scope in (ipu_scope(), contextlib.nullcontext()):
            keras.utils.clear_session()
            keras.utils.set_random_seed(1)
            with scope, device_work() as work:
                model = _model(group)
                model.compile(keras.optimizers.SGD(LEARNING_RATES.get(group, 0.05)), dict.fromkeys(model.output, "mse"))
                targets = {name: numbers(len(x), 2, seed=2) for name in model.output}
                logs = model.fit(x, targets, batch_size=len(x), epochs=2, verbose=0, shuffle=False).history
            assert work.counts.steps == (0 if found else 2)
            found.append((logs, {weight.path: np.asarray(weight) for weight in model.weights}))
    return found[0], found[1]


@pytest.mark.parametrize("name", STATELESS_ROWS)
def test_a_layer_without_weights(name: str) -> None:
    group = STATELESS_ROWS[name].group
    (logs, weights), (wanted_logs, wanted) = stepped(group)
    log = "loss" if len(wanted_logs) == 1 else f"{name}_after_loss"
    np.testing.assert_allclose(logs[log], wanted_logs[log], rtol=RTOL)
    kept = [path for path in wanted if path.startswith((f"{name}_before/", f"{name}_after/"))]
    assert len(kept) == (2 if group == "pictures" else 4)
    for path in kept:
        np.testing.assert_allclose(weights[path], wanted[path], rtol=RTOL, atol=1e-6)


def test_no_layer_without_weights_is_forgotten() -> None:
    assert sorted([*STATELESS_ROWS, "MaxNumBoundingBoxes"]) == sorted(STATELESS_LAYERS)


def test_bounding_boxes_are_padded_on_the_device() -> None:
    def padded() -> Any:
        given = keras.Input((3, 4), batch_size=2), keras.Input((3,), batch_size=2)
        boxes = layers.MaxNumBoundingBoxes(5, bounding_box_format="xyxy")(
            {"images": keras.ops.zeros((2, 4, 4, 3)), "bounding_boxes": {"boxes": given[0], "labels": given[1]}}
        )["bounding_boxes"]
        return keras.Model(given, boxes).predict([numbers(2, 3, 4), numbers(2, 3)], verbose=0)

    with ipus(1), ipu_scope(), device_work() as work:
        found = padded()
    assert work.counts.executions == 1
    wanted = padded()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
