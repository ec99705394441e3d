"""KerasHub's models, tiny and with random weights, train accumulated and in a pipeline as stock Keras does.

An optional extra: `pip install --editable '.[hub]'`. The tests are left out where KerasHub is not installed.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_ipu.options.model_state import options_of
from keras_ipu.parity.report import difference
from keras_ipu.pipeline.run_checks import shard_count, stage_numbers
from tests.helpers.device_counts import device_work
from tests.helpers.garden import CELLS, page
from tests.helpers.garden_cells import BATCH, BATCHES, Cell, Data
from tests.helpers.keras_parity import STOCK_JIT, ipu_scope
from tests.helpers.some_ipus import ipus

pytest.importorskip("keras_hub", reason="KerasHub is not installed: pip install keras-hub")

pytestmark = [
    # Its own imports are older than the packages that it imports.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # A masked LM leaves the pooled output unused.
    pytest.mark.filterwarnings("ignore:Gradients do not exist for variables:UserWarning"),
    # T5's attention has no use for masks.
    pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask attached to it:UserWarning"),
]

RTOL = 1e-5
ZERO = 1e-7
"""For what is 0 in exact arithmetic, such as the gradient of the keys' biases."""
IN_CI = "BERT: masked LM"


def trained(cell: Cell, data: Data, model: Any, optimizer: Any, steps_per_execution: int) -> dict[str, np.ndarray]:
    """Returns losses, weights and predictions after a few updates."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # KerasHub would have Keras compile for XLA by itself, with TensorFlow too.
    model.compile(optimizer, loss, steps_per_execution=steps_per_execution, jit_compile=STOCK_JIT)
    # Of arrays KerasHub's `fit` would make batches of no fixed size.
    batches = tf.data.Dataset.from_tensor_slices((data.x, data.y)).batch(BATCH, drop_remainder=True)
    losses = model.fit(batches, shuffle=False, verbose=0).history["loss"]
    found = {f"{place} {weight.path}": weight.numpy() for place, weight in enumerate(model.weights)}
    predicted = model.predict(batches.map(lambda x, y: x), verbose=0)
    return {**found, "loss": np.array(losses), "predictions": predicted}


def _seeded(cell: Cell, scope: contextlib.AbstractContextManager[Any]) -> Any:
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    with scope:
        return cell.build()


def _sgd(**arguments: Any) -> Any:
    return keras.optimizers.SGD(0.1, momentum=0.9, **arguments)


def _check(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert list(found) == list(wanted)
    gaps = [difference(each, found[each], wanted[each]) for each in wanted]
    assert [gap for gap in gaps if not gap.within(RTOL, ZERO)] == []
    assert len(gaps) > 10


@pytest.mark.parametrize(
    "cell", [pytest.param(each, marks=() if each.name == IN_CI else pytest.mark.slow, id=each.name) for each in CELLS]
)
def test_a_family_trains_at_a_task(cell: Cell) -> None:
    """A few updates of micro-batches, without stages and in a pipeline, against stock Keras's accumulation."""
    data = cell.data()
    stock = _seeded(cell, contextlib.nullcontext())
    wanted = trained(cell, data, stock, _sgd(gradient_accumulation_steps=cell.micro_batches), 1)
    for pipelined in (False, True):
        with ipus(2 if pipelined else 1), device_work() as work:
            model = _seeded(cell, ipu_scope())
            options = {
                "gradient_accumulation_steps_per_replica": cell.micro_batches,
                "gradient_accumulation_reduction_method": "mean",
            }
            if pipelined:
                model.split_into_pipeline_stages(cell.stages, micro_batch_size=BATCH, print_fn=None)
                model.set_pipelining_options(**options)
                assert set(stage_numbers(model)) == set(range(cell.stages)) and shard_count(model) == 2
                mapping = options_of(model).pipelining_device_mapping
                assert mapping == ((0, 1, 0) if cell.shared else None)
            else:
                model.set_gradient_accumulation_options(**options)
            found = trained(cell, data, model, _sgd(), cell.micro_batches)
        assert work.counts.steps == 2 * BATCHES
        _check(found, wanted)


def test_the_page_is_as_the_cells_are() -> None:
    assert (Path(__file__).parents[3] / "docs" / "garden.md").read_text(encoding="utf-8") == page()
