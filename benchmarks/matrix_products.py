"""Compares products of matrices by the native kernel with XLA's: `python -m benchmarks.matrix_products`.

Each product is computed many times in a loop on the device, once by XLA and once as programs here do, by turns; the
least time of each is printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.measuring import heading
from ipu_tf.device.convolution.native import library
from ipu_tf.device.elementwise.evaluate import with_native_elementwise

Shape = tuple[int, ...]
PRODUCTS: dict[str, tuple[str, Shape, Shape]] = {
    "dense layer": ("bi,io->bo", (32, 784), (784, 128)),
    "dense layer's gradient of weights": ("bi,bo->io", (32, 784), (32, 128)),
    "LSTM's step": ("bi,io->bo", (32, 64), (64, 256)),
    "LSTM's gradient of inputs": ("bo,io->bi", (32, 256), (64, 256)),
    "LSTM's gradient of weights": ("bi,bo->io", (32, 64), (32, 256)),
    "queries and keys": ("bqhd,bkhd->bhqk", (8, 128, 4, 64), (8, 128, 4, 64)),
    "scores and values": ("bhqk,bkhd->bhqd", (8, 4, 128, 128), (8, 128, 4, 64)),
    "gradient of values": ("bhqk,bqhd->bhkd", (8, 4, 128, 128), (8, 128, 4, 64)),
    "a token's query and keys": ("bqhd,bkhd->bhqk", (1, 1, 12, 64), (1, 1024, 12, 64)),
    "a token's scores and values": ("bhqk,bkhd->bhqd", (1, 12, 1, 1024), (1, 1024, 12, 64)),
    "transformer's layer": ("bi,io->bo", (1024, 256), (256, 1024)),
    "transformer's gradient of inputs": ("bo,io->bi", (1024, 1024), (256, 1024)),
    "transformer's gradient of weights": ("bi,bo->io", (1024, 1024), (1024, 256)),
}


def looped(product: Callable[..., jax.Array], times: int) -> Callable[..., Any]:
    """Returns the product, computed so many times in a loop: each time one number of the left operand is another."""

    def body(_: int, carried: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        left, right, made = carried
        return left.at[(0,) * left.ndim].set(made.ravel()[0] * 1e-6), right, product(left, right)

    return lambda left, right: lax.fori_loop(0, times, body, (left, right, product(left, right)))


def measured(subscripts: str, left: Shape, right: Shape, rounds: int) -> tuple[float, float, float]:
    """Returns the least microseconds of a product by XLA and by programs here, and its floating-point operations."""
    random = np.random.default_rng(0)
    operands = [jnp.asarray(random.standard_normal(shape, np.float32)) for shape in (left, right)]
    product = lambda x, y: jnp.einsum(subscripts, x, y)  # noqa: E731 - of these subscripts
    sizes = dict(zip("".join(subscripts.split("->")[0].split(",")), (*left, *right), strict=True))
    flops = 2.0 * np.prod(list(sizes.values()), dtype=float)
    count = max(10, int(1e9 / flops))
    loop = looped(product, count)
    both = [jax.jit(loop), jax.jit(with_native_elementwise(loop))]
    times: list[list[float]] = [[], []]
    for _ in range(rounds + 1):
        for function, each in zip(both, times, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(function(*operands))
            each.append((time.perf_counter() - start) * 1e6 / (count + 1))
    xla, here = (min(each[1:]) for each in times)
    return xla, here, flops


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.matrix_products", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="how often each has its turn (%(default)s)")
    asked = parser.parse_args()
    print(heading(library.described()))
    print("\n| product | shapes | XLA, us | here, us | here / XLA | here, GFLOP/s |\n|---|---|---|---|---|---|")
    for name, (subscripts, left, right) in PRODUCTS.items():
        xla, here, flops = measured(subscripts, left, right, asked.rounds)
        shapes = " and ".join(" x ".join(map(str, shape)) for shape in (left, right))
        print(
            f"| {name} | {shapes} | {xla:.1f} | {here:.1f} | {here / xla:.2f} | {flops / here / 1e3:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
