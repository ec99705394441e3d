"""A forecast of a time series by a GRU, with a chart in the terminal and the error against the naive forecast."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow reads this once, when it is imported

import keras
import numpy as np

import ipu_tf as ipu

WINDOW, AHEAD, BATCH, TRAINED = 48, 6, 32, 640


def series(hours: int) -> np.ndarray:
    """A load curve: a day of 24 hours, a week, and noise; float32 `[hours]`."""
    time = np.arange(hours)
    noise = np.random.default_rng(1).normal(size=hours)
    day, week = np.sin(2 * np.pi * time / 24), np.sin(2 * np.pi * time / 168)
    return (day * (1 + 0.5 * week) + 0.3 * week + 0.05 * noise).astype(np.float32)


def windows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Windows `[count, 48, 1]`, and the value six hours after each, `[count, 1]`."""
    count = (len(values) - WINDOW - AHEAD) // BATCH * BATCH
    x = np.stack([values[start : start + WINDOW] for start in range(count)])
    return x[..., None], values[WINDOW + AHEAD - 1 :][:count, None]


def chart(real: np.ndarray, forecast: np.ndarray, height: int = 11) -> str:
    """Two curves as letters: `·` for what came, `o` for what was forecast."""
    low, high = min(real.min(), forecast.min()), max(real.max(), forecast.max())
    grid = [[" "] * len(real) for _ in range(height)]
    for mark, curve in (("·", real), ("o", forecast)):
        for column, value in enumerate(curve):
            grid[round((high - value) / (high - low) * (height - 1))][column] = mark
    return "\n".join("".join(row).rstrip() for row in grid)


def main() -> None:
    """Trains on the first weeks, and forecasts the ones after."""
    x, y = windows(series(1000))
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    keras.utils.set_random_seed(1)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((WINDOW, 1)), keras.layers.GRU(16), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01), "mse")
        model.fit(x[:TRAINED], y[:TRAINED], batch_size=BATCH, epochs=15, verbose=0)
        forecast = model.predict(x[TRAINED:], batch_size=BATCH, verbose=0)
    real = y[TRAINED:]
    ours, naive = (float(np.abs(guess - real).mean()) for guess in (forecast, x[TRAINED:, -1]))
    print(chart(real[:96, 0], forecast[:96, 0]))
    print(f"\nfour days, {AHEAD} hours ahead (· real, o forecast)")
    print(f"mean error {ours:.3f}; of the forecast that nothing changes: {naive:.3f}")


if __name__ == "__main__":
    main()
