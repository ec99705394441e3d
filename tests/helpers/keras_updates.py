"""Weight updates of every Keras optimizer with every kind of clipping, on dense, embedding and tied models, split.

The reference is stock Keras on whole batches, its optimizer given dense gradients: Keras on JAX has no others, and on
TensorFlow those of embeddings are made dense. `python -m tests.helpers.keras_grid --updates` runs all, and
`tests/keras_ipu/training/test_keras_embeddings.py` a sample.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ipu_tf.ops.pipelining_ops import PipelineSchedule
from keras_ipu.parity.report import Difference
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus
from tests.keras_ipu.training.test_keras_split import Scaled, differences

BATCH, BATCHES, EPOCHS, ROWS, TOKENS = 4, 16, 2, 11, 6
"""A batch names 24 of 11 rows, so some of them several times."""
CLIPPING: dict[str, dict[str, float]] = {
    "none": {},
    "clipnorm": {"clipnorm": 0.2},
    "clipvalue": {"clipvalue": 0.02},
    "global_clipnorm": {"global_clipnorm": 0.3},
}
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "momentum": functools.partial(keras.optimizers.SGD, 0.02, momentum=0.9),
    **{
        name: functools.partial(getattr(keras.optimizers, name), 0.01)
        for name in (
            *("SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax"),
            *("Adafactor", "Nadam", "Ftrl", "Lion", "Lamb", "Muon"),
        )
    },
}
SPLITS = {
    # replicas, micro-batches, stages, steps per execution
    "unsplit": (1, 1, 1, 1),
    "executions": (1, 1, 1, 8),
    "accumulation": (1, 4, 1, 8),
    "replicas": (2, 1, 1, 4),
    "pipeline": (1, 4, 2, 8),
    "all": (2, 2, 2, 4),
}


def dense() -> keras.Model:
    hidden = [layers.Dense(size, activation="tanh") for size in (16, 8)]
    return keras.Sequential([keras.Input((TOKENS,), dtype="int32"), layers.Rescaling(0.1), *hidden, layers.Dense(ROWS)])


def embedding() -> keras.Model:
    after = [layers.Flatten(), layers.Dense(16, activation="tanh"), layers.Dense(ROWS)]
    return keras.Sequential([keras.Input((TOKENS,), dtype="int32"), layers.Embedding(ROWS, 8), *after])


def tied() -> keras.Model:
    """Its table gives the rows of the tokens, and the logits."""
    tokens = keras.Input((TOKENS,), dtype="int32")
    table = layers.ReversibleEmbedding(ROWS, 8)
    hidden = layers.Dense(8, activation="tanh")(layers.Flatten()(table(tokens)))
    return keras.Model(tokens, table(hidden, reverse=True))


MODELS = {"dense": dense, "embedding": embedding, "tied": tied}


@functools.cache
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, ROWS, (BATCH * BATCHES, TOKENS)).astype(np.int32)
    return tokens, rng.integers(0, ROWS, BATCH * BATCHES).astype(np.int32)


def with_dense_gradients(optimizer: Any) -> Any:
    """A stock optimizer that is given dense gradients."""
    if keras.backend.backend() == "tensorflow":
        apply = optimizer.apply

        def applied(grads: Any, trainable_variables: Any = None) -> Any:
            return apply([tf.convert_to_tensor(each) for each in grads], trainable_variables)

        object.__setattr__(optimizer, "apply", applied)  # past Keras's own `__setattr__`
    return optimizer


@dataclasses.dataclass(frozen=True)
class Update:
    """One way to train.

    Attributes:
        optimizer: of `OPTIMIZERS`.
        clipping: of `CLIPPING`.
        model: of `MODELS`.
        split: of `SPLITS`.
    """

    optimizer: str
    clipping: str
    model: str
    split: str

    def __str__(self) -> str:
        return f"{self.optimizer:<10} {self.clipping:<15} {self.model:<9} {self.split:<12}"

    def worst(self) -> Difference:
        """The largest difference from stock Keras, relative to what it is the difference of."""
        replicas, count, _, _ = SPLITS[self.split]
        wanted = _stock(self.optimizer, self.clipping, self.model, replicas * count)
        return max(differences(self.on_device(), wanted), key=lambda each: each.relative)

    def on_device(self) -> dict[str, Any]:
        """Returns losses and weights after training on the device."""
        replicas, count, stages, steps = SPLITS[self.split]
        with ipus(replicas * stages) as strategy, strategy.scope(), device_work() as work:
            model = seeded(self.model)
            if stages > 1:
                _pipeline(model, count)
            elif count > 1:
                model.set_gradient_accumulation_options(count)
            model.set_replication_options(replicated_metric_reduction_method="MEAN")
            found = _trained(model, OPTIMIZERS[self.optimizer](**CLIPPING[self.clipping]), 1, BATCH, steps)
        assert work.counts.steps == (EPOCHS + 1) * BATCHES // replicas
        return found


def updates() -> list[Update]:
    """All there are."""
    return [Update(*each) for each in itertools.product(OPTIMIZERS, CLIPPING, MODELS, SPLITS)]


def _pipeline(model: Any, count: int) -> None:
    """Two stages; the table of a tied model is on one IPU, where its third stage is too."""
    schedule: dict[str, Any] = {"pipeline_schedule": PipelineSchedule.Sequential}
    if isinstance(model, keras.Sequential):
        model.set_pipeline_stage_assignment([0, 0, 1, 1])
    else:
        assignments = model.get_pipeline_stage_assignment()
        for stage, assignment in zip((0, 0, 1, 2), assignments, strict=True):
            assignment.pipeline_stage = stage
        model.set_pipeline_stage_assignment(assignments)
        schedule["device_mapping"] = [0, 1, 0]
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=count, **schedule)


@functools.cache
def _stock(optimizer: str, clipping: str, model: str, parts: int) -> dict[str, Any]:
    made = with_dense_gradients(OPTIMIZERS[optimizer](**CLIPPING[clipping]))
    return _trained(seeded(model), made, parts, BATCH * parts, 1)


def seeded(kind: str) -> Any:
    """A model of `MODELS`, always with the same first weights."""
    keras.utils.set_random_seed(3)
    return MODELS[kind]()


def _trained(model: Any, optimizer: Any, scale: int, batch: int, steps: int) -> dict[str, Any]:
    x, y = data()
    model.compile(optimizer, Scaled(scale), metrics=["accuracy"], steps_per_execution=steps)
    history = model.fit(x, y, batch, EPOCHS, verbose=0, shuffle=False).history
    return {
        "weights": model.get_weights(),
        "updates": int(model.optimizer.iterations),
        "predicted": model.predict(x, BATCH, verbose=0),
        "loss": np.array(history["loss"]) / scale,
        "accuracy": np.array(history["accuracy"]),
        "norms": np.array(0.0),
    }
