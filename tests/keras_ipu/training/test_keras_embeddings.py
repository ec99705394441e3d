"""Updates of tables, split or not, are those of dense gradients: a sample of `tests/helpers/keras_updates.py`."""

from __future__ import annotations

import pytest

from tests.helpers.keras_updates import Update
from tests.keras_ipu.training.test_keras_split import RTOL

SAMPLE = [
    Update("Adam", "none", "embedding", "unsplit"),
    Update("Ftrl", "global_clipnorm", "embedding", "executions"),
    Update("AdamW", "clipnorm", "embedding", "accumulation"),
    Update("SGD", "clipvalue", "embedding", "replicas"),
    Update("Adam", "global_clipnorm", "embedding", "pipeline"),
    Update("RMSprop", "clipnorm", "tied", "all"),
]


@pytest.mark.parametrize("update", SAMPLE, ids=lambda update: " ".join(str(update).split()))
def test_an_update_is_that_of_dense_gradients_however_it_is_split(update: Update) -> None:
    worst = update.worst()
    assert worst.within(RTOL, 0.0), worst
