"""Trains a small BERT of Hugging Face's, a model of Keras 2, with and without the device, and prints both losses.

Needs `tf_keras` and transformers 4.x: `python -m tests.helpers.hugging_face_bert`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # before TensorFlow is imported

import numpy as np
import tensorflow as tf

import ipu_tf as ipu

SIZES: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def train(scope: contextlib.AbstractContextManager[Any]) -> tuple[list[float], np.ndarray]:
    """Returns the losses of three epochs, and the logits after them, of a model made in a scope."""
    transformers = importlib.import_module("transformers")
    tokens = np.random.default_rng(0).integers(0, SIZES["vocab_size"], (32, 12)).astype("int32")
    inputs = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
    tf.keras.utils.set_random_seed(3)
    with scope:
        model = transformers.TFBertForSequenceClassification(transformers.BertConfig(**SIZES))
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.Adam(1e-3), loss)
        labels = (tokens[:, 0] > 50).astype("int32")
        history = model.fit(inputs, labels, batch_size=8, epochs=3, shuffle=False, verbose=0).history
        return history["loss"], np.asarray(model.predict(inputs, batch_size=8, verbose=0).logits)


def main() -> None:
    """Prints the losses of both, the difference of the logits, and what the device did."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    stock, expected = train(contextlib.nullcontext())
    losses, logits = train(ipu.ipu_strategy.IPUStrategy().scope())
    counts = ipu.emulation.device_counts()
    print(f"stock {stock}\ndevice {losses}: {counts.programs} programs, {counts.executions} executions")
    print(f"largest difference of a logit {np.abs(logits - expected).max():.1e}")


if __name__ == "__main__":
    main()
