"""Benchmarks convolutions inside a loop: `python -m benchmarks.convolution_in_loop [--layers] [--plain]`.

A training step of the reference CNN (CIFAR-10, batch 64, SGD) is written out by hand, its gradients as the
convolutions that TensorFlow lowers them to, and runs in a `fori_loop` with the weights carried. Beside it the
same step by `jax.grad` and `lax.conv_general_dilated`, jitted, its weights donated, called from Python.

    --layers  also each convolution by itself in a loop, and the plan chosen for it
    --plain   also the step by hand with `lax`'s convolutions in the loop; this takes seconds a step

Wall-clock times are in milliseconds, the least of several rounds in which all take turns. CPU times beside
them, of all threads together, say more on a machine that is busy with other things.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks import convolution_step as cnn
from ipu_tf.device.convolution.convolve import ConvLayout, canonicalize, explain

ROUNDS, STEPS = 10, 4


@dataclasses.dataclass
class Contender:
    """Function to time, with its name.

    Attributes:
        run: runs so many steps and waits for them.
        compiling: seconds it took to compile.
        wall, cpu: the least milliseconds a step so far.
    """

    run: Callable[[int], None]
    compiling: float
    wall: float = float("inf")
    cpu: float = float("inf")

    def time(self, steps: int) -> None:
        """Times a round."""
        wall, cpu = time.perf_counter(), time.process_time()
        self.run(steps)
        self.wall = min(self.wall, (time.perf_counter() - wall) / steps * 1e3)
        self.cpu = min(self.cpu, (time.process_time() - cpu) / steps * 1e3)


def called() -> Contender:
    """The jitted step, its weights donated, called from Python for each step."""
    images, labels, key = cnn.batch()
    params = cnn.first_params()
    started = time.perf_counter()
    step = jax.jit(cnn.step_by_grad, donate_argnums=0).lower(params, images, labels, key).compile()
    compiling = time.perf_counter() - started

    def run(steps: int) -> None:
        nonlocal params
        for _ in range(steps):
            params = step(params, images, labels, key)
        jax.block_until_ready(params)

    return Contender(run, compiling)


def looped(library: cnn.Library) -> Contender:
    """The step by hand in a `fori_loop`."""
    operands, params = cnn.batch(), cnn.first_params()

    def loop(steps: jax.Array, params: cnn.Params, images: jax.Array, labels: jax.Array, key: jax.Array) -> cnn.Params:
        def body(number: jax.Array, params: cnn.Params) -> cnn.Params:
            return cnn.step_by_hand(library, params, images, labels, jax.random.fold_in(key, number))

        return lax.fori_loop(0, steps, body, params)

    started = time.perf_counter()
    compiled = jax.jit(loop, donate_argnums=1).lower(1, params, *operands).compile()
    compiling = time.perf_counter() - started

    def run(steps: int) -> None:
        nonlocal params
        params = jax.block_until_ready(compiled(steps, params, *operands))

    return Contender(run, compiling)


@dataclasses.dataclass(frozen=True)
class Case:
    """One of the network's convolutions: shapes of the operands, layout, padding, whether the kernel is flipped."""

    image: tuple[int, ...]
    kernel: tuple[int, ...]
    layout: ConvLayout
    pad: int
    flip: bool = False

    def convolve(self, lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        """The device's convolution."""
        return cnn.our_convolution(lhs, rhs, self.layout, self.pad, self.flip)

    @property
    def plan(self) -> str:
        """Returns the device's convolution plan."""
        window = cnn.window(self.pad)
        problem = canonicalize(self.image, self.kernel, "float32", **window, dimension_numbers=self.layout)
        return explain(problem).splitlines()[0]


def cases() -> dict[str, Case]:
    """The network's convolutions by name."""
    found = {}
    for number, (size, before, after, pad, _) in enumerate(cnn.LAYERS, 1):
        out, kernel = size + 2 * pad - 2, (3, 3, before, after)
        image, result = (cnn.BATCH, size, size, before), (cnn.BATCH, out, out, after)
        found[f"{number} forward"] = Case(image, kernel, cnn.FORWARD, pad)
        found[f"{number} filter gradient"] = Case(image, result, cnn.FILTER, pad)
        if number > 1:
            found[f"{number} input gradient"] = Case(result, kernel, cnn.INPUT, 2 - pad, True)
    return found


def one_convolution(case: Case) -> Contender:
    """Runs a convolution in a `fori_loop`, with new operands in each iteration so that it is not hoisted."""
    random = np.random.default_rng(0)
    lhs, rhs = (jnp.asarray(random.standard_normal(s, np.float32)) for s in (case.image, case.kernel))
    State = tuple[jax.Array, jax.Array, jax.Array]

    def body(number: jax.Array, state: State) -> State:
        result = case.convolve(*state[1:])
        scale = 1 + result.ravel()[0] * 1e-30
        return result, lhs * scale, rhs * scale

    def loop(steps: jax.Array, lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        return lax.fori_loop(0, steps, body, (case.convolve(lhs, rhs), lhs, rhs))[0]

    started = time.perf_counter()
    compiled = jax.jit(loop).lower(1, lhs, rhs).compile()
    compiling = time.perf_counter() - started
    return Contender(lambda steps: jax.block_until_ready(compiled(steps, lhs, rhs)), compiling)


def compare(contenders: dict[str, Contender], steps: int) -> None:
    """Times contenders by turns and prints a line for each."""
    for contender in contenders.values():
        contender.run(1)
    for _ in range(ROUNDS):
        for contender in contenders.values():
            contender.time(steps)
    for name, c in contenders.items():
        print(f"{name:28} {c.wall:8.2f} ms  cpu {c.cpu:8.2f} ms  compiled in {c.compiling:.1f} s", flush=True)


def main() -> None:
    """Prints the measurements selected on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", action="store_true", help="each convolution by itself")
    parser.add_argument("--plain", action="store_true", help="the step with lax's convolutions in the loop")
    arguments = parser.parse_args()
    compare({"jax.grad, no loop": called(), "ours, in a loop": looped(cnn.OURS)}, STEPS)
    if arguments.plain:
        contender = looped(cnn.LAX)
        contender.time(1)
        print(f"{'lax, in a loop':28} {contender.wall:8.2f} ms")
    for name, case in cases().items() if arguments.layers else ():
        compare({name: one_convolution(case)}, 20)
        print("   " + case.plan)


if __name__ == "__main__":
    main()
