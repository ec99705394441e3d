"""Creates the variables of a model's first step outside of its trace, unless later traces differ from the first.

`tf.function` traces a step once more if it creates variables. That is needed only where the step depends on what is
built: a loss scale is a constant until the optimizer is built, and a user's own step may look at `model.metrics`.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ipu_tf._training.weight_update import variables_created_whole
from keras_ipu.stock import models as keras_models
from keras_ipu.stock.compiled_metrics import metrics_built_in
from keras_ipu.stock.patches import overridden

_STEPS = ("train_step", "test_step", "compute_loss", "compute_metrics")


def slots_created(optimizer: Any) -> contextlib.AbstractContextManager[None]:
    """Context in which an optimizer creates its slots; the step is traced again if the optimizer scales the loss."""
    return variables_created_whole(traced_again=keras_models.scales_loss(optimizer))


def metrics_created(model: Any) -> contextlib.AbstractContextManager[None]:
    """Context in which a model creates its compiled metrics; steps of the user are traced again, as in stock Keras."""
    if any(overridden(model, name) for name in _STEPS):
        return contextlib.nullcontext()
    return metrics_built_in(model, variables_created_whole)
