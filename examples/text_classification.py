"""Text classification: an embedding and an LSTM tell whether a made-up review is good, `not` included."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow reads this once, when it is imported

import keras
import numpy as np

import ipu_tf as ipu

GOOD, BAD = ("great", "lovely", "brilliant", "fine"), ("dull", "awful", "boring", "poor")
THINGS = ("film", "plot", "music", "ending", "cast")
WORDS = ("<none>", "the", "was", "not", "and", *THINGS, *GOOD, *BAD)
LENGTH, BATCH, REVIEWS = 9, 32, 1024


def review(random: np.random.Generator) -> tuple[str, int]:
    """A sentence of two clauses, and 1 if its last clause is praise."""
    clauses, praise = [], 0
    for _ in range(2):
        good, negated = random.random() < 0.5, random.random() < 0.4
        word = random.choice(GOOD if good else BAD)
        clauses.append(f"the {random.choice(THINGS)} was {'not ' if negated else ''}{word}")
        praise = int(good != negated)
    return " ".join(clauses), praise


def encoded(sentences: list[str]) -> np.ndarray:
    """Sentences as numbers of words, int32 `[sentences, 9]`, padded on the left with 0."""
    rows = [[WORDS.index(word) for word in sentence.split()][-LENGTH:] for sentence in sentences]
    return np.array([[0] * (LENGTH - len(row)) + row for row in rows], np.int32)


def main() -> None:
    """Trains, tests, and tries sentences that differ in a word."""
    random = np.random.default_rng(1)
    sentences, labels = zip(*(review(random) for _ in range(REVIEWS)), strict=True)
    x, y = encoded(list(sentences)), np.array(labels, np.float32)
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    keras.utils.set_random_seed(1)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential(
            [
                keras.Input((LENGTH,)),
                keras.layers.Embedding(len(WORDS), 8),
                keras.layers.LSTM(16),
                keras.layers.Dense(1, activation="sigmoid"),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
        model.fit(x[:768], y[:768], batch_size=BATCH, epochs=12, verbose=0)
        _, accuracy = model.evaluate(x[768:], y[768:], batch_size=BATCH, verbose=0)
        tried = ["the film was great", "the film was not great", "the plot was dull and the music was not poor"]
        chances = model.predict(encoded(tried), batch_size=len(tried), verbose=0)[:, 0]
    print(f"accuracy on {REVIEWS - 768} sentences that the network has not seen: {accuracy:.1%}")
    print("the last clause of a sentence decides:")
    for sentence, chance in zip(tried, chances, strict=True):
        print(f"  {chance:4.0%} praise   {sentence}")


if __name__ == "__main__":
    main()
