"""Times layers' convolutions by native kernels against oneDNN's: `python -m benchmarks.forward_convolutions`.

Of operands in memory and in the cache, as `benchmarks.filter_gradients` does. Gradients of inputs of strided layers are
convolutions of inputs with zeros between, which oneDNN has no call for: there it computes each phase of the result.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measuring import heading, least_call
from ipu_tf.device.convolution import onednn
from ipu_tf.device.convolution.native import library
from ipu_tf.device.convolution.plan import NATIVE, ONEDNN
from ipu_tf.device.convolution.plans import candidates, solve
from ipu_tf.device.convolution.problem import CanonicalConvolution

#: Images, side of the input, features in and out, side of the window, stride. Depthwise if there are no features out;
#: the gradient of the input of a layer with a stride if that is negative.
SHAPES = (
    (64, 32, 3, 32, 3, 1),
    (64, 32, 32, 32, 3, 1),
    (64, 15, 32, 64, 3, 1),
    (8, 32, 32, 32, 3, 1),
    (32, 32, 16, 16, 3, 1),
    (32, 8, 64, 64, 3, 1),
    (16, 24, 64, 64, 3, 1),
    (16, 12, 128, 128, 3, 1),
    (16, 6, 256, 256, 3, 1),
    (16, 3, 512, 512, 3, 1),
    (16, 96, 3, 64, 7, 2),
    (16, 24, 64, 256, 1, 1),
    (16, 24, 256, 64, 1, 1),
    (16, 48, 96, 16, 1, 1),
    (16, 48, 16, 96, 1, 1),
    (32, 16, 32, 16, 3, -2),
    (16, 48, 32, 0, 3, 1),
    (16, 48, 96, 0, 3, 2),
    (16, 24, 144, 0, 3, 1),
    (16, 12, 192, 0, 3, 1),
    (16, 6, 576, 0, 3, 1),
    (16, 3, 960, 0, 3, 1),
    (16, 24, 96, 0, 3, -2),
)
SET = 100e6
"""Bytes of operands that no cache holds."""


def problem_of(images: int, side: int, features: int, out: int, window: int, stride: int) -> CanonicalConvolution:
    """Returns the convolution with padding `SAME`."""
    groups, out = (1, out) if out else (features, features)
    step, spread = max(stride, 1), max(-stride, 1)
    result = -(-side // step)
    low = max(0, (result - 1) * step + window - side) // 2 if spread == 1 else window - 1
    high = max(0, (result - 1) * step + window - side - low) if spread == 1 else window - spread + 1
    sides, windows, steps, spreads = ((size, size) for size in (side, window, step, spread))
    padding = ((low, high),) * 2
    return CanonicalConvolution(
        images, features, out, sides, windows, steps, padding, spreads, (1, 1), feature_groups=groups
    )


Call = Callable[[jax.Array, jax.Array], jax.Array]


def by_native(problem: CanonicalConvolution) -> Call:
    """Returns the best plan that calls a native kernel."""
    plan = next(plan for plan, _ in candidates(problem, frozenset({NATIVE})) if plan.calls == NATIVE)
    return jax.jit(lambda x, filters: plan.emit(x, filters, problem, solve))


def by_onednn(problem: CanonicalConvolution) -> Call:
    """Returns the best plan with oneDNN."""
    [(plan, _), *_] = candidates(problem, frozenset({ONEDNN}))
    return jax.jit(lambda x, filters: plan.emit(x, filters, problem, onednn.convolution))


def measured(problem: CanonicalConvolution, call: Call, rounds: int) -> tuple[float, float]:
    """Returns the microseconds of a call with its operands in memory and in the cache."""
    random = np.random.default_rng(0)
    filters = jnp.asarray(random.random(problem.kernel_shape, np.float32))
    count = max(3, int(SET / problem.bytes_of(*problem.input_shape)))
    sets = [(jnp.asarray(random.random(problem.input_shape, np.float32)), filters) for _ in range(count)]
    compiled = call.lower(*sets[0]).compile()  # type: ignore[attr-defined]
    return least_call(compiled, sets, rounds), least_call(compiled, sets[:1], 20 * rounds)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forward_convolutions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often it goes through all operands (%(default)s)")
    asked = parser.parse_args()
    print(heading(library.described()))
    print("\n| convolution | in memory, us | oneDNN | ratio | in the cache, us | oneDNN | ratio | GFLOP/s |")
    print("|---|---|---|---|---|---|---|---|")
    for shape in SHAPES:
        problem = problem_of(*shape)
        ours, its = (measured(problem, make(problem), asked.rounds) for make in (by_native, by_onednn))
        pairs = (f"{mine:.0f} | {other:.0f} | {mine / other:.2f}" for mine, other in zip(ours, its, strict=True))
        name = f"{problem.input_shape} to {problem.output_shape}, {problem.window[0]} x {problem.window[1]}"
        flops = 2 * problem.products / ours[1] / 1e3
        print(f"| {name.replace('(', '').replace(')', '')} |", " | ".join(pairs), f"| {flops:.0f} |", flush=True)


if __name__ == "__main__":
    main()
