"""A chat with a tiny GPT-2 that is trained here; its keys and values stay on the device between the questions.

Needs KerasHub: `pip install '.[hub]'`.
"""

from __future__ import annotations

import os
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow reads this once, when it is imported

import keras
import numpy as np
import tensorflow as tf

import ipu_tf as ipu

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own imports are older than the packages that it imports
    import keras_hub

KNOWN = {"grass": "green", "the sky": "blue", "snow": "white", "coal": "black", "a lemon": "yellow", "blood": "red"}
QUESTION, ANSWER = "what color is {} ?", "{} is {} ."
WORDS = ("<none>", *sorted({*" ".join([QUESTION, ANSWER, *KNOWN, *KNOWN.values()]).split()} - {"{}"}))
LENGTH, TALKS, BATCH = 48, 512, 32


def encoded(text: str) -> list[int]:
    """The numbers of a text's words."""
    return [WORDS.index(word) for word in text.split()]


def talk(random: np.random.Generator) -> list[int]:
    """Questions and answers, one after the other, cut to `LENGTH` words and one."""
    things = random.choice([*KNOWN], 8)
    text = " ".join(f"{QUESTION.format(thing)} {ANSWER.format(thing, KNOWN[thing])}" for thing in things)
    return encoded(text)[: LENGTH + 1]


def main() -> None:
    """Trains on made-up talks, and asks."""
    random = np.random.default_rng(1)
    talks = np.array([talk(random) for _ in range(TALKS)], np.int32)
    x = {"token_ids": talks[:, :-1], "padding_mask": np.ones((TALKS, LENGTH), np.int32)}
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    keras.utils.set_random_seed(1)
    with ipu.ipu_strategy.IPUStrategy().scope():
        backbone = keras_hub.models.GPT2Backbone(len(WORDS), 2, 2, 32, 64, dropout=0.0, max_sequence_length=LENGTH)
        model = keras_hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, weighted_metrics=[], sampler="greedy", jit_compile=False)
    data = tf.data.Dataset.from_tensor_slices((x, talks[:, 1:])).batch(BATCH, drop_remainder=True)
    history = model.fit(data, epochs=12, shuffle=False, verbose=0).history
    print(f"loss after {TALKS} talks, 12 times: {history['loss'][-1]:.2f}")
    session, before = model.ipu_generator(max_length=LENGTH), ipu.emulation.device_counts().executions
    for thing in ("snow", "a lemon", "coal"):
        question = QUESTION.format(thing)
        words = session.generate(encoded(question), max_new_tokens=6, stop_token_ids=encoded("."))
        print(f"> {question}\n{' '.join(WORDS[word] for word in words)}")
    print(f"{ipu.emulation.device_counts().executions - before} executions, {len(session.tokens)} words in the cache")


if __name__ == "__main__":
    main()
