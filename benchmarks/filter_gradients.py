"""Times native filter gradients of operands in memory, and in the cache: `python -m benchmarks.filter_gradients`.

In a training step an image was written long before its gradient is computed, so that no cache holds it any more. Here
the call goes through operands of 200 MB together, or through one and the same; the least time of each is printed.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measuring import heading, least_call
from ipu_tf.device.convolution.native import library
from ipu_tf.device.convolution.native.filter_gradient import FilterGradient, filter_gradient

#: Images, side of the input, features in and out, side of the window, stride; depthwise if there are no features out.
SHAPES = (
    (64, 32, 3, 32, 3, 1),
    (64, 32, 32, 32, 3, 1),
    (64, 15, 32, 64, 3, 1),
    (8, 32, 32, 32, 3, 1),
    (32, 16, 32, 32, 3, 1),
    (16, 12, 128, 128, 3, 1),
    (16, 48, 16, 96, 1, 1),
    (16, 24, 24, 144, 1, 1),
    (16, 48, 96, 0, 3, 2),
    (16, 24, 144, 0, 3, 1),
    (16, 12, 192, 0, 3, 1),
    (16, 6, 576, 0, 3, 1),
)
SET = 200e6
"""Bytes of operands that no cache holds."""


def geometry(images: int, side: int, features: int, out: int, window: int, stride: int) -> FilterGradient:
    """Returns the geometry of a convolution with padding `SAME`; depthwise without features out."""
    groups, out = (1, out) if out else (features, features)
    result = -(-side // stride)
    low = max(0, (result - 1) * stride + window - side) // 2
    each = [(size,) * 2 for size in (side, window, result, stride, 1, low)]
    return FilterGradient(images, features, out, groups, *each)


def measured(shapes: FilterGradient, rounds: int) -> tuple[float, float, float]:
    """Returns the bytes of the operands, and the microseconds of a call with them in memory and in the cache."""
    sizes = (
        (shapes.images, *shapes.input, shapes.in_features),
        (shapes.images, *shapes.output, shapes.out_features),
    )
    size = 4.0 * sum(np.prod(each, dtype=float) for each in sizes)
    random = np.random.default_rng(0)
    sets = [[jnp.asarray(random.random(each, np.float32)) for each in sizes] for _ in range(max(3, int(SET / size)))]
    call = jax.jit(lambda x, g: filter_gradient(x, g, shapes)).lower(*sets[0]).compile()
    return size, least_call(call, sets, rounds), least_call(call, sets[:1], 50 * rounds)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.filter_gradients", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often it goes through all operands (%(default)s)")
    asked = parser.parse_args()
    print(heading(library.described()))
    print("\n| images, features, window | MB | in memory, us | GB/s | in the cache, us | GFLOP/s |")
    print("|---|---|---|---|---|---|")
    for images, side, features, out, window, stride in SHAPES:
        shapes = geometry(images, side, features, out, window, stride)
        size, memory, cache = measured(shapes, asked.rounds)
        flops = 2.0 * shapes.images * np.prod(shapes.output) * window**2 * features * (out or 1)
        kind = f"{features} to {out}" if out else f"{features} depthwise"
        step = f", step {stride}" if stride > 1 else ""
        print(
            f"| {images} x {side} x {side}, {kind}, {window} x {window}{step} | {size / 1e6:.1f} | {memory:.0f} | "
            f"{size / memory / 1e3:.0f} | {cache:.0f} | {flops / cache / 1e3:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
